// Files in and out: instance, result, picture and the files of runtimes; and the link.

import { send } from "./ask.js";
import { byId, element, setOptions, tell } from "./dom.js";
import { PROVED, replace, state, writeAddress } from "./state.js";

const MOST_BYTES = 8 * 2 ** 20;
const RUNTIMES = ["torch", "torchtitan", "megatron", "deepspeed", "colossalai", "primus", "mindformers"];
const CHOICES = [
  ["", "as a file …"], ["instance", "instance (JSON)"], ["result", "result (JSON)"], ["picture", "picture (PNG)"],
  ...RUNTIMES.map((name) => [`runtime:${name}`, `schedule for ${name}`]),
];

// Names of files come from names of pipelines, which may be anything.
function fileName(ending) {
  const name = String(state.instance.name ?? "pipeline").replace(/[^\w.-]+/g, "-").replace(/^[.-]+/, "").slice(0, 60);
  return `${name || "pipeline"}${ending}`;
}

function offer(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  byId("save").dataset.saved = name;
}

function asJson(document) {
  return new Blob([`${JSON.stringify(document, null, 2)}\n`], { type: "application/json" });
}

// Whether the service takes a pipeline; if it does it is shown.
export async function adopt(instance, shown, proof = null) {
  if (typeof instance !== "object" || instance === null || instance.kind !== "pipeline") {
    const kind = instance?.kind === undefined ? "no kind" : `kind ${JSON.stringify(instance.kind).slice(0, 60)}`;
    tell(`This page shows pipelines; the file has ${kind}.`);
    return false;
  }
  try {
    await send("picture", { body: { instance, drawn: [] } });
  } catch (error) {
    tell(error.message);
    return false;
  }
  tell(null);
  replace(instance, shown, proof);
  return true;
}

export async function read(file) {
  if (file.size > MOST_BYTES) {
    tell(`${file.name} is larger than ${MOST_BYTES / 2 ** 20} MiB.`);
    return;
  }
  let document;
  try {
    document = JSON.parse(await file.text());
  } catch {
    tell(`${file.name} is no JSON file.`);
    return;
  }
  const isResult = document && typeof document.instance_document === "object" && document.instance_document !== null;
  const instance = isResult ? document.instance_document : document;
  const proof = isResult && document.schedule ? document : null;
  const shown = proof ? [state.shown[0] === PROVED ? "1f1b" : state.shown[0], PROVED] : undefined;
  if (await adopt(instance, shown, proof)) tell(`${file.name} is open.`, true);
}

async function runtimeFile(runtime) {
  const name = state.shown.at(-1);
  const schedule = name === PROVED ? state.proof : name;
  const { files, notes } = await send("export", { body: { instance: state.instance, schedule, runtime } });
  for (const [path, text] of Object.entries(files)) {
    offer(new Blob([text], { type: "text/plain" }), fileName(`-${name}-${path}`));
  }
  tell([`The file has ${name}.`, ...notes].join(" "), true);
}

async function save(choice, picture) {
  if (choice === "instance") offer(asJson(state.instance), fileName(".json"));
  if (choice === "picture") offer(await picture(), fileName(".png"));
  if (choice === "result") {
    if (!state.proof) tell("There is no result yet: prove it first.");
    else offer(asJson(state.proof), fileName(".result.json"));
  }
  if (choice.startsWith("runtime:")) await runtimeFile(choice.slice("runtime:".length));
}

async function copy() {
  writeAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    tell("The link is copied; whoever opens it sees this pipeline on the same service.", true);
  } catch {
    tell("The link is in the address bar.", true);
  }
}

// `picture`: makes a PNG of the chart.
export function makeFiles(picture) {
  setOptions(byId("save"), CHOICES, "");
  byId("save").addEventListener("change", async () => {
    const choice = byId("save").value;
    byId("save").value = "";
    try {
      tell(null);
      await save(choice, picture);
    } catch (error) {
      tell(error.message);
    }
  });
  byId("copy").addEventListener("click", copy);
  byId("open").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", async () => {
    const [file] = byId("file").files;
    if (file) await read(file);
    byId("file").value = "";
  });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (file) read(file);
  });
}
