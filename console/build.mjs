// Makes the page, its script and style sheet, and the script that is loaded on demand, named by what is in them:
// `node build.mjs [FOLDER]`. Without a folder they go where the service has them. The same sources give the same bytes on every machine.
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
