// The audit log: who did what, the newest first. It has no key's value, and nothing that users said.
import { useState } from "preact/hooks";
import { toProject } from "../state";
import { Choice } from "../views/dialog";
import { useLoaded } from "../views/loading";
import { Ago, Failure, Line } from "../views/text";
import { Pages } from "./pages";
import { type AuditEntry, administrators, entries } from "./requests";

const TYPES = [
  "project.created", "project.updated", "project.archived", "rate_limit.updated", "rate_limit.deleted",
  "service_account.created", "service_account.updated", "service_account.deleted", "api_key.created", "api_key.updated",
  "api_key.deleted", "response.deleted", "response.erased", "conversation.deleted", "item.deleted", "item.erased",
  "batch.created", "batch.cancelled", "login.failed", "store.fsck_repaired", "archive.repaired", "archive.erased",
  "archive.accepted", "archive.held", "archive.released",
];

export function Audit() {
  const [type, setType] = useState("");
  const [version, setVersion] = useState(0);
  const { value: names, error, again } = useLoaded("administrators", administrators, () => 0);
  return (
    <>
      <header class="heading">
        <h1>Audit log</h1>
        <button onClick={() => setVersion(version + 1)}>Refresh</button>
      </header>
      <div class="filters">
        <Choice name="Type" value={type} options={[["", "any"], ...TYPES.map((each): [string, string] => [each, each])]} onChange={setType} />
      </div>
      <Failure error={error} again={again} />
      <Pages
        key={type}
        what="Audit log"
        version={version}
        load={(after, signal) => entries(type, after, signal)}
        next="Older"
        previous="Newer"
        titles={["Time", "Type", "Actor", "Project", "Target"]}
        row={(entry) => <Row key={entry.id} entry={entry} names={names} />}
        empty={<p>{type ? "No entries of this type." : "No entries yet."}</p>}
      />
    </>
  );
}

function Row({ entry, names }: { entry: AuditEntry; names: Map<string, string> | null }) {
  const about = entry[entry.type];
  const { id, ...more } = (typeof about === "object" && about !== null ? about : {}) as Record<string, unknown>;
  const actor = entry.actor.api_key?.id ?? entry.actor.session?.ip_address ?? "";
  const name = names?.get(actor);
  return (
    <tr>
      <td><Ago at={entry.effective_at} /></td>
      <th scope="row" class="type"><Line text={entry.type} /></th>
      <td>
        {name && <><Line text={name} />{" "}</>}
        <span class="mono"><Line text={actor} /></span>
      </td>
      <td>
        {entry.project ? <a href={toProject(entry.project.id)}><Line text={entry.project.name} /></a> : "–"}
      </td>
      <td class="mono">
        {typeof id === "string" && <Line text={id} />}
        {Object.keys(more).length > 0 && (
          <div class="hint">
            <Line text={JSON.stringify(more)} />
          </div>
        )}
      </td>
    </tr>
  );
}
