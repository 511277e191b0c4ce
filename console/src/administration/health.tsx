// How full the store is, what waits in it, and whether the engine's servers are up: read again and again.
import { useLoaded } from "../views/loading";
import { Failure, Line, Loading } from "../views/text";
import { Table } from "./pages";
import { type Health, type Shard, health } from "./requests";

const REFRESH_MS = 5_000;

/** What a shard holds, the setting that bounds it, and what both are called. */
const HELD: [string, string, (shard: Shard) => number][] = [
  ["Responses", "max_responses", (shard) => shard.responses],
  ["Bytes of conversations", "max_bytes", (shard) => shard.bytes],
  ["Queued", "max_queued", queued],
  ["Bytes of event logs", "max_log_bytes", (shard) => shard.log_bytes],
  ["Webhooks", "max_webhooks_pending", (shard) => shard.webhooks_pending],
];

const REASONS: Record<string, string> = {
  responses: "for the cap on responses",
  trees: "for the cap on conversations",
  bytes: "for the cap on bytes",
  memory: "for the server's memory",
  idle: "unused for too long",
};

function queued(shard: Shard): number {
  return Object.values(shard.queued).reduce((sum, each) => sum + each, 0);
}

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
        </>
      )}
    </>
  );
}

function Shards({ value }: { value: Health }) {
  return (
    <section>
      <h2>Store</h2>
      {value.shards === null ? (
        <Failure error="What the shards hold can't be read now." />
      ) : (
        <Table name="Shards">
          <thead>
            <tr>
              <th scope="col">Shard</th>
              {HELD.map(([title]) => (
                <th scope="col" class="number">
                  {title}
                </th>
              ))}
              <th scope="col" class="number">Running</th>
              <th scope="col" class="number">Longest wait</th>
            </tr>
          </thead>
          <tbody>
            {value.shards.map((shard) => (
              <tr key={shard.shard}>
                <th scope="row">{shard.shard}</th>
                {HELD.map(([, setting, of]) => (
                  <Filled held={of(shard)} most={value.limits[setting]} />
                ))}
                <td class="number">{shard.running.toLocaleString("en")}</td>
                <td class="number">{Math.round(shard.oldest_seconds).toLocaleString("en")} s</td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
    </section>
  );
}

/** How much there is of how much there may be, and how full that is. */
function Filled({ held, most }: { held: number; most: number | undefined }) {
  const part = most ? held / most : 0;
  return (
    <td class="number">
      {short(held)}
      {most !== undefined && (
        <>
          {` of ${short(most)} `}
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
      <p class="hint">Turns that nobody deleted and that went, since the processes behind this port started.</p>
      <Table name="Evicted">
        <tbody>
          {Object.entries(value.removed).map(([reason, number]) => (
            <tr key={reason}>
              <th scope="row">{REASONS[reason] ?? <Line text={reason} />}</th>
              <td class="number">{number.toLocaleString("en")}</td>
            </tr>
          ))}
        </tbody>
      </Table>
    </section>
  );
}

function Servers({ value }: { value: Health }) {
  return (
    <section>
      <h2>Engines</h2>
      <p class="hint">
        As the process that answered sees them; {value.engine_waiting.toLocaleString("en")} generations wait there for room.
      </p>
      {value.engines.length === 0 ? (
        <p class="empty">The engine has no servers of its own.</p>
      ) : (
        <Table name="Engines">
          <thead>
            <tr>
              <th scope="col">Server</th>
              <th scope="col">State</th>
              <th scope="col" class="number">Tokens under way</th>
              <th scope="col" class="number">Room for</th>
            </tr>
          </thead>
          <tbody>
            {value.engines.map(({ server, up, tokens, room }) => (
              <tr key={server}>
                <th scope="row">
                  <Line text={server} />
                </th>
                <td class={up ? "" : "over"}>{up ? "up" : "down"}</td>
                <td class="number">{tokens === null ? "–" : tokens.toLocaleString("en")}</td>
                <td class="number">{room === null ? "–" : room.toLocaleString("en")}</td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
    </section>
  );
}
