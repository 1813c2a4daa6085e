// Making elements: texts are always texts, never markup.

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

export function byId(name) {
  return document.getElementById(name);
}

const figures = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

export function figure(number) {
  return number === null || number === undefined ? "–" : figures.format(number);
}

export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  return `${(share * 100).toFixed(share && Math.abs(share) < 0.1 ? 2 : 1)} %`;
}

// Says something above the columns; `owner` takes back only what it has said itself.
export function tell(text, isGood = false, owner = "") {
  const place = byId("message");
  if (!text && owner && place.dataset.owner !== owner) return;
  place.dataset.owner = owner;
  place.textContent = text ?? "";
  place.hidden = !text;
  place.classList.toggle("good", isGood);
}

export function setOptions(select, entries, chosen) {
  const wanted = JSON.stringify(entries);
  if (select.dataset.entries !== wanted) {
    select.replaceChildren(...entries.map(([value, text]) => element("option", { value, textContent: text })));
    select.dataset.entries = wanted;
  }
  select.value = chosen;
}
