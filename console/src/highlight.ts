// What colours code, a file of its own: highlight.js with some languages. It says what stands where, and makes no markup of it.
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const LANGUAGES = { bash, diff, go, ini, java, json, python, rust, sql, typescript, xml, yaml };
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);
hljs.registerAliases(["javascript", "js", "jsx"], { languageName: "typescript" });

/** A text, or what is of one kind: a keyword, a string, a comment. */
export type Scoped = string | { scope?: string; children: Scoped[] };

/** A text as what stands in it. */
export function scopes(text: string, language: string): Scoped[] {
  const { _emitter } = hljs.highlight(text, { language, ignoreIllegals: true });
  return (_emitter as unknown as { rootNode: { children: Scoped[] } }).rootNode.children;
}
