// One project: who has keys of it, how it is limited, and what it used.
import { useState } from "preact/hooks";
import { said, toProjects } from "../state";
import { useLoaded } from "../views/loading";
import { Copy, Failure, Line, Loading } from "../views/text";
import { ChangeProject } from "./change";
import { Keys } from "./keys";
import { ProjectLimits } from "./limits";
import { Confirm, Day, Pages } from "./pages";
import { type Account, type Project, accounts, archiveProject, deleteAccount, oneProject } from "./requests";
import { Usage } from "./usage";

export function ProjectView({ id }: { id: string }) {
  const { value: project, error, again } = useLoaded(id, (signal) => oneProject(id, signal), () => 0);
  return (
    <>
      <a class="back" href={toProjects}>
        ← Projects
      </a>
      {error && (
        <>
          <h1>This can't be shown</h1>
          <Failure error={error} again={again} />
        </>
      )}
      {!project && !error && <Loading what="the project" />}
      {project && <Whole project={project} again={again} />}
    </>
  );
}

function Whole({ project, again }: { project: Project; again: () => void }) {
  const [ending, setEnding] = useState(false);
  const [changing, setChanging] = useState(false);
  const [version, setVersion] = useState(0);
  const isOver = project.archived_at !== null;
  const changed = (): void => setVersion((before) => before + 1);
  return (
    <>
      <header class="heading">
        <h1>
          <Line text={project.name} />
        </h1>
        {!isOver && <button onClick={() => setChanging(true)}>Change…</button>}
        {!isOver && !project.static && (
          <button class="danger" onClick={() => setEnding(true)}>
            Archive…
          </button>
        )}
      </header>
      <p class="about">
        <Copy text={project.id} label={project.id} title="Copy the id" quiet />
        {project.static ? (
          <span>its keys are in the settings</span>
        ) : (
          <span>
            created <Day at={project.created_at} />
          </span>
        )}
        {project.weight !== null && <span>weight {project.weight.toLocaleString("en")}</span>}
        {project.archived_at !== null && (
          <span class="over">
            archived <Day at={project.archived_at} />
          </span>
        )}
      </p>
      {!project.static && (
        <>
          <Keys project={project.id} version={version} isOver={isOver} onChanged={changed} />
          <section>
            <h2>Service accounts</h2>
            <Pages
              what="Service accounts"
              version={version}
              load={(after, signal) => accounts(project.id, after, signal)}
              head={
                <tr>
                  <th scope="col">Name</th>
                  <th scope="col">Id</th>
                  <th scope="col">Created</th>
                  <th scope="col">
                    <span class="unshown">Actions</span>
                  </th>
                </tr>
              }
              row={(account) => <AccountRow key={account.id} project={project.id} account={account} isOver={isOver} onChanged={changed} />}
              empty={<p>No service accounts yet. One is made with its first key.</p>}
            />
          </section>
        </>
      )}
      <ProjectLimits project={project.id} isOver={isOver} />
      <section>
        <h2>Usage</h2>
        <Usage project={project.id} />
      </section>
      {changing && <ChangeProject project={project} onDone={again} onClose={() => setChanging(false)} />}
      {ending && (
        <Confirm
          title={
            <>
              Archive <Line text={project.name} />?
            </>
          }
          meaning="All of its keys open nothing any more. Nothing of that can be taken back."
          label="Archive"
          act={() => archiveProject(project.id)}
          onDone={() => {
            said.value = "The project is archived.";
            again();
          }}
          onClose={() => setEnding(false)}
        />
      )}
    </>
  );
}

interface AccountShown {
  project: string;
  account: Account;
  isOver: boolean;
  onChanged: () => void;
}

function AccountRow({ project, account, isOver, onChanged }: AccountShown) {
  const [ending, setEnding] = useState(false);
  return (
    <tr>
      <th scope="row">
        <Line text={account.name} />
      </th>
      <td class="mono">
        <Line text={account.id} />
      </td>
      <td>
        <Day at={account.created_at} />
      </td>
      <td class="act">
        {!isOver && (
          <button class="danger" aria-label={`Delete the account ${account.id}`} onClick={() => setEnding(true)}>
            Delete…
          </button>
        )}
        {ending && (
          <Confirm
            title={
              <>
                Delete <Line text={account.name} />?
              </>
            }
            meaning="All keys of this service account open nothing any more. Nothing of that can be taken back."
            label="Delete"
            act={() => deleteAccount(project, account.id)}
            onDone={() => {
              said.value = "The service account is deleted.";
              onChanged();
            }}
            onClose={() => setEnding(false)}
          />
        )}
      </td>
    </tr>
  );
}
