// Colours of ops, texts on them, and the look of the page in light and dark.

const looks = {};
const FONT = "11px system-ui, sans-serif";
const LETTER = 6.6;
const patterns = new Map();

function readLooks() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["back", "text", "faint", "line", "lane", "strip", "bad", "mark"]) {
    looks[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

function darker([red, green, blue]) {
  return [red, green, blue].map((part) => Math.round(part * 0.72));
}

// Two shades of each kind: stages of one device take turns.
function tones(shown) {
  return shown.kinds.map((kind) => [channels(kind.colour), darker(channels(kind.colour))].map((rgb) => ({
    rgb,
    fill: `rgb(${rgb.join(",")})`,
    ink: 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 120 ? "#000" : "#fff",
  })));
}

for (const shown of all) shown.tones = tones(shown);

function hatching(context) {
  if (!patterns.has(context)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.strokeStyle = "rgba(0,0,0,.45)";
    pen.beginPath();
    for (const shift of [-6, 0, 6]) {
      pen.moveTo(shift, 6);
      pen.lineTo(shift + 6, 0);
    }
    pen.stroke();
    patterns.set(context, context.createPattern(tile, "repeat"));
  }
  return patterns.get(context);
}

// The longest label that fits into a width; nothing where none does.
function fitting(shown, op, width) {
  if (width < LETTER + 2) return "";
  return labelsOf(shown, op).find((label) => label.length * LETTER + 3 <= width) ?? "";
}

function cut(text, width) {
  const most = Math.floor(width / LETTER);
  return text.length <= most ? text : `${text.slice(0, Math.max(0, most - 1))}…`;
}

function fillLegend(place) {
  const seen = new Map();
  for (const shown of all) {
    const used = new Set(shown.kind);
    shown.kinds.forEach((kind, number) => {
      if (used.has(number)) seen.set(`${kind.words} ${kind.colour} ${kind.letter}`, kind);
    });
  }
  for (const kind of seen.values()) {
    const item = document.createElement("span");
    const box = document.createElement("i");
    box.textContent = kind.letter;
    box.style.background = kind.colour;
    if (kind.hatched) box.className = "hatched";
    const rgb = channels(kind.colour);
    box.style.color = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 120 ? "#000" : "#fff";
    const words = kind.words.startsWith(`${kind.letter} `) ? kind.words.slice(2) : kind.words;
    item.append(box, ` ${words}`);
    place.append(item);
  }
}
