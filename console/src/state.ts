// What the whole page knows: the key, where it is, and how it looks. The key is kept for this tab alone, and never in a cookie; a
// new tab has it from another one that is open, and all forget it together.
import { signal } from "@preact/signals";

const KEY = "harmonium.key";
const THEME = "harmonium.theme";

/** When a tab forgot the key for all: each keeps its key with it. */
const FORGOTTEN = "harmonium.forgotten";

/** Whether another tab forgot the key for this one, which may have been elsewhere then. */
const isForgotten = (): boolean =>
  sessionStorage.getItem(KEY) !== null && sessionStorage.getItem(FORGOTTEN) !== localStorage.getItem(FORGOTTEN);

if (isForgotten()) sessionStorage.clear();
for (const event of ["storage", "pageshow"]) addEventListener(event, () => isForgotten() && forgetKey());

export const key = signal(sessionStorage.getItem(KEY) ?? "");

/** Whether the service asks for a key: unknown until it was asked. */
export const locked = signal<boolean | null>(null);

/** Whether the key is an administrator's, which opens no conversation. */
export const administers = signal(false);

/** Why the key was forgotten, in the service's words; nothing where that was wished. */
export const refused = signal("");

export function useKey(value: string): void {
  key.value = value;
  sessionStorage.setItem(KEY, value);
  const last = localStorage.getItem(FORGOTTEN);
  if (last) sessionStorage.setItem(FORGOTTEN, last);
}

/** The other tabs of this origin, which no page of another can hear. */
const others = new BroadcastChannel(KEY);
const ASK = "ask";
others.onmessage = ({ data }: MessageEvent<string>) => {
  if (data === ASK) key.value && locked.value === false && others.postMessage(`key ${key.value}`);
  else if (locked.value === null && !key.value) useKey(data.slice(4));
};

/** How long another tab has to tell its key. */
const TELL_MS = 300;

/** Ask the other tabs for the key; whether one told it. */
export async function askOthers(): Promise<boolean> {
  others.postMessage(ASK);
  await new Promise((resolve) => {
    others.addEventListener("message", resolve, { once: true });
    setTimeout(resolve, TELL_MS);
  });
  return key.value !== "";
}

/** Have all tabs forget their keys. */
export function leave(): void {
  localStorage.setItem(FORGOTTEN, new Date().toISOString());
  forgetKey();
  location.hash = toList;
}

export function forgetKey(why = ""): void {
  key.value = "";
  administers.value = false;
  refused.value = why;
  said.value = "";
  sessionStorage.clear(); // drafts, too
  localStorage.removeItem(VERSIONS);
  versions.value = [];
  locked.value = true;
}

/**
 * Conversations that begin with versions of one message, by the ids of their first turns: the one that was edited first, and those of
 * the last edits. A version has the first one's id in its metadata, too, for other browsers.
 */
const VERSIONS = "harmonium.versions";
const MAX_EDITED = 200;
export const EDITED_FROM = "edited_from";
const versions = signal<string[][]>(JSON.parse(localStorage.getItem(VERSIONS) ?? "[]"));

export const versionsOf = (root: string): string[] => versions.value.find((each) => each.includes(root)) ?? [root];

function keepVersions(of: string, ids: string[]): void {
  versions.value = [ids, ...versions.value.filter((each) => !each.includes(of))].filter((each) => each.length > 1).slice(0, MAX_EDITED);
  localStorage.setItem(VERSIONS, JSON.stringify(versions.value));
}

export function addVersion(first: string, made: string): void {
  if (!versionsOf(first).includes(made)) keepVersions(first, [...versionsOf(first), made]);
}

export const dropVersion = (gone: string): void => keepVersions(gone, versionsOf(gone).filter((each) => each !== gone));

export type Place =
  | { view: "list" }
  | { view: "new" }
  | { view: "tree"; id: string; words: string }
  | { view: "compare"; left: string; right: string }
  | { view: "administration"; section: Section; id: string };

/** A part of the administration. */
export type Section = "projects" | "usage" | "audit" | "health";
const SECTIONS: Section[] = ["projects", "usage", "audit", "health"];

function placeOf(hash: string): Place {
  const [view, ...ids] = hash.replace(/^#\/?/, "").split("/").map(decoded);
  if (view === "c" && ids[0]) return { view: "tree", id: ids[0], words: ids[1] ?? "" };
  if (view === "compare" && ids[0] && ids[1]) return { view: "compare", left: ids[0], right: ids[1] };
  if (view === "new") return { view };
  const section = SECTIONS.find((each) => each === view);
  if (section) return { view: "administration", section, id: ids[0] ?? "" };
  return { view: "list" };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    if (error instanceof URIError) return text; // no escapes, then
    throw error;
  }
}

export const place = signal<Place>(placeOf(location.hash));
addEventListener("hashchange", () => (place.value = placeOf(location.hash)));

/** The address of a place in this page. */
export const toList = "#/";
export const toNew = "#/new";
export const toTurn = (id: string, words = ""): string => `#/c/${encodeURIComponent(id)}${words && `/${encodeURIComponent(words)}`}`;
export const toCompare = (left: string, right: string): string =>
  `#/compare/${encodeURIComponent(left)}/${encodeURIComponent(right)}`;

export const toSection = (section: Section): string => `#/${section}`;
export const toProjects = toSection("projects");
export const toProject = (id: string): string => `${toProjects}/${encodeURIComponent(id)}`;

export type Theme = "auto" | "light" | "dark";
const THEMES: Theme[] = ["auto", "light", "dark"];

export const theme = signal<Theme>(THEMES.find((each) => each === localStorage.getItem(THEME)) ?? "auto");
theme.subscribe((value) => {
  document.documentElement.dataset["theme"] = value;
  localStorage.setItem(THEME, value);
});

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "auto";
}

/** What is said to whoever listens to the page instead of seeing it. */
export const said = signal("");
