// How full the store is, what waits in it, and whether the engine's servers are up: read again and again.
import { useLoaded } from "../views/loading";
import { Failure, Loading, count, size } from "../views/text";
import { Cell, Name, Table } from "./pages";
import { type Health, type Shard, health } from "./requests";

const REFRESH_MS = 5_000;

/** What a shard holds, the setting that bounds it, and what both are called; whether it is in bytes. */
const HELD: [string, string, (shard: Shard) => number, boolean?][] = [
  ["Responses", "max_responses", (shard) => shard.responses],
  ["Conversations", "max_bytes", (shard) => shard.bytes, true],
  ["Queued", "max_queued_responses", (shard) => shard.waiting.reduce((sum, each) => sum + each, 0)],
  ["Event logs", "max_event_log_bytes", (shard) => shard.log_bytes, true],
  ["Webhooks", "max_webhooks_pending", (shard) => shard.pending],
];

const REASONS: Record<string, string> = {
  responses: "limit of responses",
  trees: "limit of conversations",
  bytes: "limit of bytes",
  memory: "memory of the server",
  idle: "idle for too long",
};

const short = (number: number): string => number.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });

export function HealthView() {
  const { value, error, again } = useLoaded("health", health, () => REFRESH_MS);
  return (
    <>
      <header class="heading">
        <h1>Health</h1>
        <button onClick={again}>Refresh</button>
      </header>
      <Failure error={error} again={again} />
      {!value && !error && <Loading what="the health of the store" />}
      {value && (
        <>
          <Shards value={value} />
          <Removed value={value} />
          <Servers value={value} />
          <Batches value={value} />
        </>
      )}
    </>
  );
}

function Shards({ value }: { value: Health }) {
  return (
    <section>
      <h2>Store</h2>
      {value.shards === null ? <Failure error="The store can't be read now." /> : (
        <Table name="Shards" titles={["Shard"]} numbers={[...HELD.map(([title]) => title), "Running", "Longest wait"]}>
          {Object.entries(value.shards).map(([number, shard]) => (
            <tr key={number}>
              <th scope="row">{number}</th>
              {HELD.map(([, setting, of, isBytes]) => (
                <Filled held={of(shard)} most={value.limits[setting]} show={isBytes ? size : short} />
              ))}
              <Cell number={shard.running} />
              <td class="number">{Math.round(shard.oldest_seconds).toLocaleString("en")} s</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

/** How much there is of how much there may be, and how full that is. */
function Filled({ held, most, show }: { held: number; most: number | undefined; show: (number: number) => string }) {
  const part = most ? held / most : 0;
  return (
    <td class="number">
      {show(held)}
      {most !== undefined && (
        <>
          {` of ${show(most)} `}
          <span class={part >= 0.9 ? "over" : "hint"}>{part.toLocaleString("en", { style: "percent" })}</span>
        </>
      )}
    </td>
  );
}

function Removed({ value }: { value: Health }) {
  return (
    <section>
      <h2>Evicted</h2>
      <p class="hint">Turns that the service evicted since it started, by reason. Nobody deleted them.</p>
      <Table name="Evicted" titles={[]}>
        {Object.entries(value.removed).map(([reason, number]) => (
          <tr key={reason}>
            <Name text={REASONS[reason] ?? reason} />
            <Cell number={number} />
          </tr>
        ))}
      </Table>
    </section>
  );
}

function Servers({ value }: { value: Health }) {
  return (
    <section>
      <h2>Engines</h2>
      <p class="hint">As one process of the service sees them: {count(value.engine_waiting, "request")} waiting there.</p>
      {value.engines.length === 0 ? <p class="empty">The engine has no servers of its own.</p> : (
        <Table name="Engines" titles={["Server", "State"]} numbers={["Tokens running", "Token limit"]}>
          {value.engines.map(({ server, up, tokens, room }) => (
            <tr key={server}>
              <Name text={server} />
              <td class={up ? "" : "over"}>{up ? "up" : "down"}</td>
              <Cell number={tokens} />
              <Cell number={room} />
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

function Batches({ value }: { value: Health }) {
  const { batches } = value.work;
  return batches?.length ? (
    <section>
      <h2>Batches</h2>
      <Table name="Batches" titles={["Batch", "Project", "State"]} numbers={["Lines", "Answered", "Failed"]}>
        {batches.map(({ tenant, id, status, counts }) => (
          <tr key={id}>
            <Name text={id} />
            <td>{tenant}</td>
            <td>{status}</td>
            {[counts.total, counts.completed, counts.failed].map((number) => <Cell number={number} />)}
          </tr>
        ))}
      </Table>
    </section>
  ) : null;
}
