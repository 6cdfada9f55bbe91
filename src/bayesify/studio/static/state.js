// The state of a page is its URL: what differs from the defaults is written there, so that a link shows the same.
export function pageState(defaults) {
  const given = new URLSearchParams(location.search);
  const state = {};
  for (const [name, value] of Object.entries(defaults)) {
    const text = given.get(name);
    if (text === null) state[name] = value;
    else if (typeof value === "number") state[name] = Number.isFinite(Number(text)) && text !== "" ? Number(text) : value;
    else if (typeof value === "boolean") state[name] = text === "1";
    else state[name] = text;
  }
  state.set = (changes) => {
    Object.assign(state, changes);
    const next = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(defaults)) {
      if (state[name] === value) next.delete(name);
      else next.set(name, typeof state[name] === "boolean" ? (state[name] ? "1" : "0") : String(state[name]));
    }
    history.replaceState(history.state, "", `?${next}${location.hash}`);
    return state;
  };
  return state;
}

export const currentPage = () => new URLSearchParams(location.search).get("page") ?? "draw";
export const controlsHidden = () => new URLSearchParams(location.search).get("controls") === "0";

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const two = (value) => { const whole = Math.min(4095, Math.max(0, Math.round(value * 4095))); return DIGITS[whole >> 6] + DIGITS[whole & 63]; };

// The pad's grid: a coordinate is a whole number of steps, which two letters hold exactly.
export const STEPS = 4095;
export const onGrid = (value) => Math.min(STEPS, Math.max(0, Math.round(value * STEPS))) / STEPS;

// Strokes: four letters a point; strokes apart by a full stop.
export const packStrokes = (strokes) => strokes.map((stroke) => stroke.map(([x, y]) => two(x) + two(y)).join("")).join(".");
export function unpackStrokes(text) {
  if (!text) return [];
  return text.split(".").map((part) => {
    const points = [];
    const value = (pair) => (DIGITS.includes(pair[0]) && DIGITS.includes(pair[1]) ? ((DIGITS.indexOf(pair[0]) << 6) + DIGITS.indexOf(pair[1])) / STEPS : NaN);
    for (let place = 0; place + 3 < part.length; place += 4) points.push([value(part.slice(place, place + 2)), value(part.slice(place + 2, place + 4))]);
    return points;
  }).filter((stroke) => stroke.length && stroke.flat().every((value) => value >= 0));
}

// Points with a label: five letters each, from -4 to 4.
export const packPoints = (points) => points.map(([x, y, label]) => two((x + 4) / 8) + two((y + 4) / 8) + label).join("");
export function unpackPoints(text) {
  const points = [];
  const value = (pair) => ((DIGITS.indexOf(pair[0]) << 6) + DIGITS.indexOf(pair[1])) / 4095 * 8 - 4;
  for (let place = 0; place + 4 < text.length; place += 5) {
    points.push([Number(value(text.slice(place, place + 2)).toFixed(3)), Number(value(text.slice(place + 2, place + 4)).toFixed(3)), text[place + 4] === "1" ? 1 : 0]);
  }
  return points;
}
