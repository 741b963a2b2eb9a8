// Which point is nearest to a place, among a million, without looking at all of them.

const SIDE = 512;

function cell(value) {
  return Math.min(SIDE - 1, Math.max(0, Math.floor((value + 1) * 0.5 * SIDE)));
}

export class Grid {
  constructor(points) {
    this.points = points;
    const number = points.length / 2;
    const starts = new Uint32Array(SIDE * SIDE + 1);
    const cells = new Uint32Array(number);
    for (let row = 0; row < number; row++) {
      const at = cell(points[2 * row + 1]) * SIDE + cell(points[2 * row]);
      cells[row] = at;
      starts[at + 1]++;
    }
    for (let at = 0; at < SIDE * SIDE; at++) starts[at + 1] += starts[at];
    this.starts = starts;
    this.rows = new Uint32Array(number);
    const next = starts.slice();
    for (let row = 0; row < number; row++) this.rows[next[cells[row]]++] = row;
  }

  // The row nearest to (x, y), distances in units of `wide` and `high`, or -1 where none is within
  // one unit; `allowed(row)` leaves out what is hidden.
  nearest(x, y, wide, high, allowed = () => true) {
    const { points, starts, rows } = this;
    const left = cell(x - wide),
      right = cell(x + wide);
    let best = -1,
      least = 1;
    for (let line = cell(y - high); line <= cell(y + high); line++) {
      const stop = starts[line * SIDE + right + 1];
      for (let at = starts[line * SIDE + left]; at < stop; at++) {
        const row = rows[at];
        const dx = (points[2 * row] - x) / wide,
          dy = (points[2 * row + 1] - y) / high;
        const distance = dx * dx + dy * dy;
        if (distance <= least && allowed(row)) {
          best = row;
          least = distance;
        }
      }
    }
    return best;
  }
}
