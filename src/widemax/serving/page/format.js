// Numbers as they are read.

export function whole(value) {
  return Math.round(value).toLocaleString("en-US");
}

// A number with the digits it is worth.
export function figure(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return whole(value);
  return String(Number(value.toPrecision(4)));
}

export function score(value) {
  if (!Number.isFinite(value)) return "–";
  return Math.abs(value) >= 100 ? value.toFixed(1) : value.toFixed(3);
}

export function share(probability) {
  const percent = 100 * probability;
  return percent >= 0.01 ? `${Number(percent.toPrecision(2))}\u00a0%` : "under 0.01\u00a0%";
}

export function plural(count, one, many = `${one}s`) {
  return `${whole(count)} ${count === 1 ? one : many}`;
}

export function popularity(item, total) {
  const place = total ? `${whole(item.rank)} of ${whole(total)}` : whole(item.rank);
  return `popularity ${place}`;
}
