// Makes the page, its script and style sheet, the script that is loaded on demand, and the licences of the packages in them, named by their content:
// `node build.mjs [FOLDER]`. Without a folder they go where the service has them. The same sources give the same bytes on every machine.
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { build } from "esbuild";

const here = import.meta.dirname;
const out = process.argv[2] ?? join(here, "../service/features/console/static");

const made = async (entryPoints, plugins = []) => {
  const { outputFiles } = await build({
    absWorkingDir: here,
    entryPoints,
    plugins,
    entryNames: "[name]-[hash]",
    outdir: out,
    bundle: true,
    minify: true,
    format: "esm",
    target: "chrome123",
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    charset: "utf8",
    write: false,
  });
  return outputFiles;
};

// By itself, as parts that both share would be a third file, for which the page waits.
const [highlight] = await made({ highlight: "src/highlight.ts" });
const onDemand = {
  name: "on demand",
  setup: ({ onResolve }) =>
    onResolve({ filter: /\/highlight$/ }, () => ({ path: `./${basename(highlight.path)}`, external: true })),
};
const files = await made({ console: "src/main.tsx" }, [onDemand]);

await mkdir(out, { recursive: true });
for (const name of await readdir(out)) await rm(join(out, name));
const names = {};
for (const file of [highlight, ...files]) {
  const name = basename(file.path);
  names[name.split(".").at(-1)] = name;
  await writeFile(join(out, name), file.contents);
}
const page = await readFile(join(here, "index.html"), "utf8");
await writeFile(join(out, "index.html"), page.replace("SCRIPT", names.js).replace("STYLE", names.css));

// A copy of a package's code needs its licence beside it.
const { packages } = JSON.parse(await readFile(join(here, "package-lock.json"), "utf8"));
const licences = [];
for (const [path, { dev, version, license }] of Object.entries(packages)) {
  if (!path || dev) continue;
  const name = (await readdir(join(here, path))).find((each) => /^licen[cs]e/i.test(each));
  const text = await readFile(join(here, path, name), "utf8");
  licences.push(`${path.replace("node_modules/", "")}\n${version}\n${license}\n${text.trim()}\n`);
}
const text = licences.join("\n\n");
const hash = createHash("sha256").update(text).digest("hex").slice(0, 8).toUpperCase();
await writeFile(join(out, `licences-${hash}.txt`), text);
