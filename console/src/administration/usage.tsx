// What was used: bars of hours or days, and the same as tables.
import { useMemo, useState } from "preact/hooks";
import { Choice } from "../views/dialog";
import { useLoaded } from "../views/loading";
import { Failure, Line, Loading } from "../views/text";
import { Chart, OTHERS, type Series } from "./chart";
import { Cell, Table } from "./pages";
import { type Bucket, type Grouping, MOST, type Used, keys, projects, usage } from "./requests";

const HOUR = 3_600;
const DAY = 24 * HOUR;

interface Period {
  words: string;
  width: "1h" | "1d";
  seconds: number;
  buckets: number;
}
const PERIODS: Record<string, Period> = {
  day: { words: "the last day", width: "1h", seconds: HOUR, buckets: 24 },
  week: { words: "the last week", width: "1d", seconds: DAY, buckets: 7 },
  month: { words: "the last month", width: "1d", seconds: DAY, buckets: 31 },
};

const GROUPINGS: [Grouping, string][] = [["project_id", "project"], ["api_key_id", "key"], ["model", "model"]];

const MEASURES: Record<string, (used: Used) => number> = {
  tokens: (used) => used.input_tokens + used.output_tokens,
  requests: (used) => used.num_model_requests,
};

/** How many groups have a colour of their own. */
const COLOURED = 5;

/** What is told of a group or a time, and the columns of it. */
const SUMMED = ["num_model_requests", "input_tokens", "input_cached_tokens", "output_tokens"] as const;
const NUMBERS = ["Requests", "Input tokens", "Cached", "Output tokens"];

const numbersOf = (all: Used[]): number[] => SUMMED.map((each) => all.reduce((sum, used) => sum + used[each], 0));

/** Usage of one project, or of all. */
export function Usage({ project }: { project?: string }) {
  const [period, setPeriod] = useState("week");
  const [by, setBy] = useState<Grouping>(project ? "model" : "project_id");
  const [measure, setMeasure] = useState("tokens");
  const { words, width, seconds, buckets } = PERIODS[period]!;
  const { value, error, again } = useLoaded(
    JSON.stringify([project, period, by]),
    async (signal) => {
      const since = (Math.floor(Date.now() / 1000 / seconds) - buckets + 1) * seconds;
      const wished = { since, width, buckets, by, ...(project ? { project } : {}) };
      const [found, names] = await Promise.all([usage(wished, signal), namesOf(by, project, signal)]);
      return { found, names };
    },
    () => 0,
  );
  const groups = useMemo(() => (value ? groupsOf(value.found, by) : []), [value]);
  const nameOf = (id: string): string => value?.names.get(id) ?? (id || "counted together");
  const valueOf = MEASURES[measure]!;
  return (
    <>
      <div class="filters">
        <Choice name="Period" value={period} options={Object.entries(PERIODS).map(([id, { words }]) => [id, words])} onChange={setPeriod} />
        <Choice
          name="Grouped by"
          value={by}
          options={GROUPINGS.filter(([id]) => !project || id !== "project_id")}
          onChange={(id) => setBy(id as Grouping)}
        />
        <Choice name="Show" value={measure} options={Object.keys(MEASURES).map((id) => [id, id])} onChange={setMeasure} />
        <button onClick={again}>Refresh</button>
      </div>
      <Failure error={error} again={again} />
      {!value && !error && <Loading what="usage" />}
      {value && groups.length === 0 && <p class="empty">Nothing was used in {words}.</p>}
      {value && groups.length > 0 && (
        <>
          <Chart
            label={`${measure === "tokens" ? "Tokens" : "Requests"} of ${words}, ${width === "1h" ? "by hours" : "by days"} (UTC). The tables below have the numbers.`}
            bars={barsOf(value.found, by, groups, valueOf, nameOf)}
            hours={width === "1h"}
          />
          <Totals groups={groups} by={by} nameOf={nameOf} />
          <Times buckets={value.found} hours={width === "1h"} />
        </>
      )}
    </>
  );
}

/** The names of what usage is grouped by, as far as a page has them: those of others are their ids. */
async function namesOf(by: Grouping, project: string | undefined, signal: AbortSignal): Promise<Map<string, string>> {
  if (by === "project_id") {
    return new Map((await projects(null, MOST, true, signal)).data.map(({ id, name }) => [id, name]));
  }
  if (by === "api_key_id" && project) {
    const known = (await keys(project, null, signal)).data;
    return new Map(known.map(({ id, name, redacted_value }) => [id, `${name} (${redacted_value})`]));
  }
  return new Map();
}

type Group = [id: string, used: Used[]];

/** What was used by each, the one with the most tokens first. */
function groupsOf(buckets: Bucket[], by: Grouping): Group[] {
  const groups = Map.groupBy(buckets.flatMap((bucket) => bucket.results), (used) => used[by] ?? "");
  const tokens = ([, all]: Group) => all.reduce((sum, used) => sum + used.input_tokens + used.output_tokens, 0);
  return [...groups].sort((left, right) => tokens(right) - tokens(left));
}

function barsOf(
  buckets: Bucket[],
  by: Grouping,
  groups: Group[],
  valueOf: (used: Used) => number,
  nameOf: (id: string) => string,
): Series[] {
  const coloured = new Map(groups.slice(0, COLOURED).map(([id], colour) => [id, colour]));
  return buckets.map(({ start_time, results }) => {
    const parts = new Map<number, { name: string; value: number }>();
    for (const used of results) {
      const id = used[by] ?? "";
      const colour = coloured.get(id) ?? OTHERS;
      const part = parts.get(colour) ?? { name: colour === OTHERS ? "others" : nameOf(id), value: 0 };
      part.value += valueOf(used);
      parts.set(colour, part);
    }
    return { start: start_time, parts: [...parts].map(([colour, part]) => ({ colour, ...part })) };
  });
}

function Totals({ groups, by, nameOf }: { groups: Group[]; by: Grouping; nameOf: (id: string) => string }) {
  const title = (GROUPINGS.find(([id]) => id === by)?.[1] ?? "").replace(/^./, (first) => first.toUpperCase());
  return (
    <Table name="Usage in all" titles={[title]} numbers={NUMBERS}>
      {groups.map(([id, all], index) => (
        <tr key={id}>
          <th scope="row">
            <i class={`swatch lane-${Math.min(index, OTHERS)}`} aria-hidden="true" />
            <Line text={nameOf(id)} />
          </th>
          {numbersOf(all).map((number) => <Cell number={number} />)}
        </tr>
      ))}
    </Table>
  );
}

/** Every bar as a row: for who doesn't see the chart, and who wants the numbers. */
function Times({ buckets, hours }: { buckets: Bucket[]; hours: boolean }) {
  return (
    <details class="times">
      <summary>By the {hours ? "hour" : "day"}, in numbers (UTC)</summary>
      <Table name={hours ? "Usage by hours" : "Usage by days"} titles={[hours ? "Hour" : "Day"]} numbers={NUMBERS}>
        {buckets.map((bucket) => (
          <tr key={bucket.start_time}>
            <th scope="row">{new Date(bucket.start_time * 1000).toISOString().slice(0, hours ? 16 : 10).replace("T", " ")}</th>
            {numbersOf(bucket.results).map((number) => <Cell number={number} />)}
          </tr>
        ))}
      </Table>
    </details>
  );
}
