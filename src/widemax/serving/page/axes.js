// Where values stand on an axis, and which of them are labelled: as in the reports.

export function axis(values, start, stop, { log = false, fromZero = false } = {}) {
  const there = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  let low = there.length ? Math.min(...there) : 1,
    high = there.length ? Math.max(...there) : 2;
  if (log) {
    const margin = 10 ** (0.05 * (Math.log10(high / low) || 1));
    low /= margin;
    high *= margin;
  } else {
    if (fromZero) low = Math.min(low, 0);
    const margin = 0.05 * (high - low || Math.abs(high) || 1);
    if (!fromZero) low -= margin;
    high += margin;
  }
  const scaled = log ? Math.log10 : (value) => value;
  const place = (value) =>
    start + ((scaled(value) - scaled(low)) / (scaled(high) - scaled(low))) * (stop - start);
  return { low, high, place, ticks: log ? decades(low, high) : even(low, high) };
}

function even(low, high) {
  const rough = (high - low) / 5,
    unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * unit).find((each) => each >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at <= Math.floor(high / step + 1e-9); at++)
    found.push(Number((at * step).toPrecision(12)));
  return found;
}

function decades(low, high) {
  const first = Math.floor(Math.log10(low)),
    last = Math.ceil(Math.log10(high));
  const marks = (parts) => {
    const found = [];
    for (let power = first; power <= last; power++)
      for (const part of parts) found.push(part * 10 ** power);
    return found.filter((value) => value >= low && value <= high);
  };
  const whole = marks([1]);
  if (whole.length > 2)
    return whole.filter((_, place) => place % Math.ceil(whole.length / 6) === 0);
  const parts = marks([1, 2, 5]);
  return parts.length ? parts : even(low, high);
}

export function label(value) {
  const size = Math.abs(value);
  for (const [unit, sign] of [
    [1e9, "G"],
    [1e6, "M"],
  ])
    if (size >= unit) return `${Number((value / unit).toPrecision(4))}${sign}`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(4))}k`;
  return size >= 1000
    ? Math.round(value).toLocaleString("en-US")
    : String(Number(value.toPrecision(6)));
}
