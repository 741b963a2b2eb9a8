// Points on a canvas: drawn by WebGL 2, or on a plain canvas where no graphics card draws (a WebGL
// that the processor imitates takes about a hundred times as long as the loop below).

const VERTEX = `#version 300 es
in vec2 place;
in float code;
uniform vec4 view;
uniform float size;
uniform float alpha;
uniform sampler2D palette;
out vec4 colour;
void main() {
  colour = texelFetch(palette, ivec2(int(code), 0), 0);
  // A hidden colour is put outside of what is seen.
  gl_Position = colour.a > 0.0 ? vec4(place * view.xy + view.zw, 0.0, 1.0) : vec4(2.0, 2.0, 2.0, 1.0);
  gl_PointSize = size;
  colour = vec4(colour.rgb, alpha);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
in vec4 colour;
uniform float size;
out vec4 shown;
void main() {
  vec2 from = gl_PointCoord - 0.5;
  // Small points are squares: nobody sees the corners, and they cost.
  if (size > 3.0 && dot(from, from) > 0.25) discard;
  shown = vec4(colour.rgb * colour.a, colour.a);
}`;

// While the map moves, so many points are drawn; all of them when it rests.
const MOVING = 250000;

function shuffled(number) {
  const order = new Uint32Array(number);
  let seed = 1;
  for (let at = 0; at < number; at++) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    const other = Math.floor((seed / 2 ** 32) * (at + 1));
    order[at] = order[other];
    order[other] = at;
  }
  return order;
}

function program(gl) {
  const made = gl.createProgram();
  for (const [kind, text] of [
    [gl.VERTEX_SHADER, VERTEX],
    [gl.FRAGMENT_SHADER, FRAGMENT],
  ]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    gl.attachShader(made, shader);
  }
  gl.bindAttribLocation(made, 0, "place");
  gl.bindAttribLocation(made, 1, "code");
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS) && !gl.isContextLost())
    throw new Error(gl.getProgramInfoLog(made));
  return made;
}

class WebGLPainter {
  constructor(canvas, gl) {
    this.gl = gl;
    this.canvas = canvas;
    this.setUp();
  }

  setUp() {
    const { gl } = this;
    this.program = program(gl);
    this.at = Object.fromEntries(
      ["view", "size", "alpha", "palette"].map((name) => [
        name,
        gl.getUniformLocation(this.program, name),
      ]),
    );
    this.buffers = {
      points: gl.createBuffer(),
      codes: gl.createBuffer(),
      order: gl.createBuffer(),
    };
    this.texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER])
      gl.texParameteri(gl.TEXTURE_2D, name, gl.NEAREST);
    gl.useProgram(this.program);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  setPoints(points, order) {
    const { gl } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers.points);
    gl.bufferData(gl.ARRAY_BUFFER, points, gl.STATIC_DRAW);
    gl.vertexAttribPointer(0, 2, gl.FLOAT, false, 0, 0);
    gl.enableVertexAttribArray(0);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.buffers.order);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, order, gl.STATIC_DRAW);
  }

  setCodes(codes) {
    const { gl } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers.codes);
    gl.bufferData(gl.ARRAY_BUFFER, codes, gl.STATIC_DRAW);
    gl.vertexAttribPointer(1, 1, gl.UNSIGNED_BYTE, false, 0, 0);
    gl.enableVertexAttribArray(1);
  }

  setPalette(palette) {
    const { gl } = this;
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, 256, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, palette);
  }

  draw({ scales, x, y, width, height, size, alpha, background, number }) {
    const { gl, at } = this;
    gl.viewport(0, 0, width, height);
    gl.clearColor(background[0] / 255, background[1] / 255, background[2] / 255, 1);
    gl.clear(gl.COLOR_BUFFER_BIT);
    const sx = (2 * scales[0]) / width,
      sy = (2 * scales[1]) / height;
    gl.uniform4f(at.view, sx, sy, -x * sx, -y * sy);
    gl.uniform1f(at.size, size);
    gl.uniform1f(at.alpha, alpha);
    gl.drawElements(gl.POINTS, number, gl.UNSIGNED_INT, 0);
  }
}

// The places of a round stamp, as steps from its first pixel.
function stamp(side) {
  const places = [];
  const middle = (side - 1) / 2;
  for (let down = 0; down < side; down++) {
    for (let right = 0; right < side; right++) {
      if (side < 4 || (right - middle) ** 2 + (down - middle) ** 2 <= (side / 2) ** 2)
        places.push([right, down]);
    }
  }
  return places;
}

class PlainPainter {
  constructor(canvas) {
    this.context = canvas.getContext("2d", { alpha: false });
  }

  setPoints(points, order) {
    Object.assign(this, { points, order });
  }
  setCodes(codes) {
    this.codes = codes;
  }
  setPalette(palette) {
    this.palette = palette;
  }

  draw({ scales, x, y, width, height, size, alpha, background, number }) {
    if (this.image?.width !== width || this.image.height !== height)
      this.image = this.context.createImageData(width, height);
    const { points, order, codes, palette } = this,
      { data } = this.image;
    const [red, green, blue] = background;
    new Uint32Array(data.buffer).fill(((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0);
    const side = Math.max(1, Math.round(size)),
      part = Math.round(alpha * 256);
    const steps = Int32Array.from(stamp(side), ([right, down]) => 4 * (down * width + right));
    const across = width / 2 - side / 2 - x * scales[0] + 0.5,
      up = height / 2 - side / 2 + y * scales[1] + 0.5;
    for (let place = 0; place < number; place++) {
      const row = order[place];
      const left = Math.floor(points[2 * row] * scales[0] + across),
        top = Math.floor(up - points[2 * row + 1] * scales[1]);
      // A point at the very edge is left out whole.
      if (left < 0 || top < 0 || left + side > width || top + side > height) continue;
      const colour = 4 * codes[row];
      if (!palette[colour + 3]) continue;
      const first = 4 * (top * width + left);
      for (let step = 0; step < steps.length; step++) {
        const at = first + steps[step];
        data[at] += ((palette[colour] - data[at]) * part) >> 8;
        data[at + 1] += ((palette[colour + 1] - data[at + 1]) * part) >> 8;
        data[at + 2] += ((palette[colour + 2] - data[at + 2]) * part) >> 8;
      }
    }
    this.context.putImageData(this.image, 0, 0);
  }
}

// Browsers do not hold to failIfMajorPerformanceCaveat: the name of what draws tells.
function hasGraphicsCard() {
  const gl = document.createElement("canvas").getContext("webgl2");
  const named = gl?.getExtension("WEBGL_debug_renderer_info");
  const name = named ? gl.getParameter(named.UNMASKED_RENDERER_WEBGL) : "";
  gl?.getExtension("WEBGL_lose_context")?.loseContext();
  return gl !== null && !/swiftshader|llvmpipe|software|basic render/i.test(name);
}

export class Scatter {
  constructor(canvas, drawn = () => {}) {
    this.canvas = canvas;
    this.drawn = drawn;
    this.view = { x: 0, y: 0, zoom: 1 };
    this.number = 0;
    this.background = [255, 255, 255];
    this.palette = new Uint8Array(1024).fill(255);
    const gl =
      hasGraphicsCard() &&
      canvas.getContext("webgl2", { antialias: false, alpha: false, preserveDrawingBuffer: true });
    this.painter = gl ? new WebGLPainter(canvas, gl) : new PlainPainter(canvas);
    canvas.dataset.painter = gl ? "webgl2" : "2d";
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => {
      this.painter.setUp();
      this.setPoints(this.points, this.codes);
      this.painter.setPalette(this.palette);
    });
  }

  setPoints(points, codes) {
    this.points = points;
    this.number = points.length / 2;
    this.painter.setPoints(points, shuffled(this.number));
    this.setCodes(codes);
  }

  setCodes(codes) {
    this.codes = codes;
    this.painter.setCodes(codes);
    this.ask();
  }

  setPalette(palette, background) {
    Object.assign(this, { palette, background });
    this.painter.setPalette(palette);
    this.ask();
  }

  // Pixels of the canvas for one unit of the points, across and up: what is wide is filled, as the
  // axes have no common unit.
  get scales() {
    const { width, height } = this.canvas;
    return [Math.min(width, 2 * height), Math.min(height, 2 * width)].map(
      (side) => this.view.zoom * side * 0.47,
    );
  }

  // Units of the points for one pixel of the page, across and up.
  get one() {
    return this.scales.map((scale) => this.ratio / scale);
  }

  resize(width, height, ratio) {
    this.ratio = ratio;
    const wide = Math.max(1, Math.round(width * ratio)),
      high = Math.max(1, Math.round(height * ratio));
    if (this.canvas.width === wide && this.canvas.height === high) return;
    this.canvas.width = wide;
    this.canvas.height = high;
    this.ask();
  }

  toPoint(left, top) {
    const { canvas, view, scales, ratio } = this;
    return [
      view.x + (left * ratio - canvas.width / 2) / scales[0],
      view.y - (top * ratio - canvas.height / 2) / scales[1],
    ];
  }

  toScreen(x, y) {
    const { canvas, view, scales, ratio } = this;
    return [
      ((x - view.x) * scales[0] + canvas.width / 2) / ratio,
      (canvas.height / 2 - (y - view.y) * scales[1]) / ratio,
    ];
  }

  move(view) {
    const zoom = Math.min(4000, Math.max(0.5, view.zoom));
    const hold = (value) => Math.min(1.2, Math.max(-1.2, value));
    this.view = { x: hold(view.x), y: hold(view.y), zoom };
    this.ask(true);
  }

  // Zoom about a place of the screen, which stays where it is.
  zoomAt(left, top, by) {
    const [x, y] = this.toPoint(left, top);
    const zoom = Math.min(4000, Math.max(0.5, this.view.zoom * by));
    const kept = this.view.zoom / zoom;
    this.move({ x: x + (this.view.x - x) * kept, y: y + (this.view.y - y) * kept, zoom });
  }

  ask(moving = false) {
    this.moving = moving;
    clearTimeout(this.rest);
    if (moving && this.number > MOVING) this.rest = setTimeout(() => this.ask(), 160);
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    if (!this.number) return;
    const { canvas, view, scales, number, background } = this;
    const size = this.pointSize() * (this.ratio ?? 1);
    // Where points lie on each other they are let through, so that density is seen.
    const alpha = Math.min(
      0.9,
      Math.max(0.3, 0.3 + 0.6 * Math.min(1, (view.zoom * 60000) / number)),
    );
    this.painter.draw({
      scales,
      x: view.x,
      y: view.y,
      width: canvas.width,
      height: canvas.height,
      size,
      alpha,
      background,
      number: this.moving ? Math.min(number, MOVING) : number,
    });
    this.drawn();
  }

  pointSize() {
    const rest =
      this.number < 3000 ? 6 : this.number < 20000 ? 4 : this.number < 150000 ? 2.6 : 1.5;
    return Math.min(14, rest * Math.max(1, this.view.zoom) ** 0.4);
  }
}
