// A card to share, 1200 x 630 pixels: the drawing, what each network says of it, how sure it is, and the link.
import { colour, sure } from "./dom.js";

const [WIDTH, HEIGHT] = [1200, 630];
const FONT = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'Liberation Sans', Arial, sans-serif";

const UNLIKE = "unlike the training data";

// `rows` are { name, label, confidence, accepted, unlike, mistakes, rounds }. A link that is too long to be read leaves out
// the drawing, which the card shows.
export async function shareCard(drawing, rows, link) {
  const canvas = new OffscreenCanvas(WIDTH, HEIGHT);
  const context = canvas.getContext("2d");
  const write = (text, x, y, size, fill, { weight = 400, most = 9999, align = "left" } = {}) => {
    context.font = `${weight} ${size}px ${FONT}`;
    context.fillStyle = colour(fill);
    context.textAlign = align;
    context.fillText(fitting(context, text, most), x, y);
  };
  context.fillStyle = colour("--paper");
  context.fillRect(0, 0, WIDTH, HEIGHT);
  context.fillStyle = colour("--accent");
  context.fillRect(0, 0, WIDTH, 10);
  write("Who knows that they do not know?", 50, 82, 42, "--ink", { weight: 680 });
  context.fillStyle = colour("--pad");
  context.fillRect(50, 120, 420, 420);
  context.drawImage(drawing, 50, 120, 420, 420);
  context.strokeStyle = colour("--muted");
  context.lineWidth = 2;
  context.strokeRect(50, 120, 420, 420);
  const shown = rows.slice(0, 6);
  const height = 420 / shown.length;
  shown.forEach((row, place) => {
    const top = 120 + place * height;
    const large = Math.min(44, height * 0.42);
    const small = Math.max(18, Math.min(24, height * 0.24));
    write(row.name, 520, top + small, small, "--muted", { most: 420 });
    // The reason stands beside the name where there is room for all of it.
    const after = 532 + Math.min(420, context.measureText(row.name).width);
    context.font = `400 18px ${FONT}`;
    if (row.unlike && after + context.measureText(UNLIKE).width <= 945) write(UNLIKE, after, top + small, 18, "--doubt");
    write(row.accepted ? row.label : "I do not know", 520, top + small + large, large, row.accepted ? "--ink" : "--doubt", { weight: 680, most: 380 });
    write(row.accepted ? `${sure(row.confidence)} sure` : `best guess: ${row.label} (${sure(row.confidence)})`, 1150, top + small + large, small, "--ink", { align: "right", most: 300 });
    if (row.rounds) write(`sure but wrong: ${row.mistakes} of ${row.rounds}`, 1150, top + small, Math.min(small, 18), "--muted", { align: "right", most: 200 });
  });
  context.font = `400 20px ${FONT}`;
  const whole = context.measureText(link).width <= 900;
  write(whole ? link : link.replace(/[?].*/, "?page=draw"), 50, 598, 20, "--accent", { most: 900 });
  write("bayesify studio", 1150, 598, 22, "--muted", { align: "right", weight: 620 });
  return canvas.convertToBlob({ type: "image/png" });
}

function fitting(context, text, most) {
  if (context.measureText(text).width <= most) return text;
  let kept = text;
  while (kept.length > 1 && context.measureText(`${kept}…`).width > most) kept = kept.slice(0, -1);
  return `${kept}…`;
}
