// A new conversation: its first words, and what they are asked with. All of it survives a reload.
import { useLayoutEffect, useState } from "preact/hooks";
import { models, tools } from "../api";
import { type Settings, NO_SETTINGS, beginning, curl } from "../request";
import { key, toList, toTurn } from "../state";
import { Coming, Composer, coming, writing } from "./composer";
import { Choice, Field } from "./dialog";
import { useLoaded } from "./loading";
import { Code, Failure, Line, Loading, wordsOf } from "./text";

const PLACE = "new";
const KEPT = "harmonium.new";
const EFFORTS = ["low", "medium", "high"];

/** What tools are called; one of an operator's server by the server's label. */
const NAMES: Record<string, string> = { web_search: "Web search", code_interpreter: "Python", mcp: "MCP servers" };

const EXAMPLE = '[{"type": "mcp", "server_label": "maps", "server_url": "https://…"}]';

export function NewConversation() {
  const [chosen, setChosen] = useState<Settings>(() => ({ ...NO_SETTINGS, ...JSON.parse(sessionStorage.getItem(KEPT) ?? "{}") }));
  const { value: known, error, again } = useLoaded("models", models, () => 0);
  const { value: offered, error: failed } = useLoaded("tools", tools, () => 0);
  const there = offered?.filter(({ setting }) => setting === null).map(({ declaration }) => JSON.stringify(declaration)) ?? [];
  const model = known && !known.some(({ id }) => id === chosen.model) ? (known[0]?.id ?? "") : chosen.model;
  const settings = { ...chosen, model, hosted: chosen.hosted.filter((each) => there.includes(each)) };
  useLayoutEffect(() => void (writing.value = PLACE), []);
  function set(changed: Partial<Settings>) {
    const next = { ...chosen, ...changed };
    setChosen(next);
    sessionStorage.setItem(KEPT, JSON.stringify(next));
  }
  const toggled = (tool: string) =>
    settings.hosted.includes(tool) ? settings.hosted.filter((each) => each !== tool) : [...settings.hosted, tool];
  return (
    <main class="list begin">
      <header class="heading">
        <a class="back" href={toList}>← Conversations</a>
        <h1>New conversation</h1>
      </header>
      <Failure error={error || failed} again={again} />
      <div class="filters">
        <Choice name="Model" value={settings.model} options={(known ?? []).map(({ id }) => [id, id])} onChange={(model) => set({ model })} />
        <Choice
          name="Reasoning effort"
          value={settings.effort}
          options={[["", "default"], ...EFFORTS.map((each): [string, string] => [each, each])]}
          onChange={(effort) => set({ effort })}
        />
      </div>
      <div class="filters" role="group" aria-label="Tools">
        {offered?.map(({ declaration, setting }) => {
          const tool = JSON.stringify(declaration);
          const name = declaration.server_label ?? NAMES[declaration.type] ?? declaration.type;
          return (
            <label class="check" title={setting ? "The service hasn't got it: its operator sets this" : ""}>
              <input type="checkbox" disabled={setting !== null} checked={settings.hosted.includes(tool)} onChange={() => set({ hosted: toggled(tool) })} />
              <Line text={name} /> {setting && <code>{setting}</code>}
            </label>
          );
        })}
      </div>
      <Field isLong name="Instructions" value={settings.instructions} placeholder="none" onText={(instructions) => set({ instructions })} />
      <Field isLong name="More tools" value={settings.tools} placeholder={EXAMPLE} spellcheck={false} onText={(tools) => set({ tools })} />
      {coming.value?.after === PLACE && <Coming />}
      <Composer
        draft={{ title: "Ask something", at: PLACE, text: "", model, body: (said) => beginning(settings, said) }}
        onBegun={() => undefined}
        onDone={(id) => (location.hash = toTurn(id))}
      />
      <details>
        <summary class="hint">The same as curl</summary>
        <First settings={settings} />
      </details>
    </main>
  );
}

/** What begins a conversation as a line for a shell: as it was chosen, or with a model that there is. */
export function First({ settings = NO_SETTINGS }: { settings?: Settings }) {
  const { value: known, error } = useLoaded("models", models, () => 0);
  if (!known && !error) return <Loading what="the models" />;
  try {
    const body = beginning({ ...settings, model: settings.model || (known?.[0]?.id ?? "MODEL") }, "Hello!");
    return <Code text={curl(location.origin, key.value !== "", body)} />;
  } catch (error) {
    return <Failure error={wordsOf(error)} />;
  }
}
