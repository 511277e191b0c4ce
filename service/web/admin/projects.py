"""Projects, their service accounts and their keys over HTTP."""

from typing import Annotated, Literal

from fastapi import Request
from pydantic import Field
from starlette.responses import Response as HttpResponse

from service.tenants.audit import Actor
from service.tenants.directory import Directory, RecordPage
from service.tenants.records import Account, Key, Project
from service.web.admin.shapes import (
    Deleted,
    ModelsDeleted,
    Page,
    account_shown,
    key_shown,
    made_shown,
    models_shown,
    project_shown,
    read_account,
    read_changed_key,
    read_changed_project,
    read_key,
    read_models,
    read_project,
    read_renamed_account,
)
from service.web.errors import JsonResponse
from service.web.plain import PlainRouter, Query
from service.web.routes.received import body_of, exchange_of, service_of

router = PlainRouter()

MAX_PAGE = 100

Limit = Annotated[int, Field(ge=1, le=MAX_PAGE)]
_PROJECT = "/organization/projects/{project_id}"
_MODELS = f"{_PROJECT}/model_permissions"
_ACCOUNTS = f"{_PROJECT}/service_accounts"
_KEYS = f"{_PROJECT}/api_keys"


class PageQuery(Query):
    """The query for a page of a list."""

    limit: Limit = 20
    after: str | None = None


class ProjectsQuery(PageQuery):
    """The query for a page of projects."""

    include_archived: bool = False


class KeysQuery(PageQuery):
    """The query for a page of a project's keys."""

    owner_project_access: Literal["active", "inactive", "any"] = "any"


def directory_of(request: Request) -> Directory:
    """The projects, accounts and keys of this service."""
    return service_of(request).directory


def actor_of(request: Request) -> Actor:
    """The administrator who makes a request."""
    actor = exchange_of(request).entry.actor
    assert actor is not None  # the gate lets nobody else in
    return actor


def page_of(listed: RecordPage[Project] | RecordPage[Account] | RecordPage[Key], shown: list[object]) -> JsonResponse:
    """A page of a list, as its records are shown."""
    ids = [each.id for each in listed.records]
    last = ids[-1] if ids and not listed.more else listed.last
    return JsonResponse(Page(shown, ids[0] if ids else None, last, listed.more))


@router.route("GET", "/organization/projects", query=ProjectsQuery)
async def list_projects(request: Request, query: ProjectsQuery) -> HttpResponse:
    """Projects in the order in which they were made."""
    page = await directory_of(request).projects(after=query.after, limit=query.limit, archived=query.include_archived)
    return page_of(page, [project_shown(each) for each in page.records])


@router.route("POST", "/organization/projects")
async def create_project(request: Request) -> HttpResponse:
    """A project: a tenant of its own, whose keys see nothing of any other."""
    name, weight = read_project(await body_of(request))
    return JsonResponse(project_shown(await directory_of(request).create_project(actor_of(request), name, weight)))


@router.route("GET", _PROJECT)
async def retrieve_project(request: Request, project_id: str) -> HttpResponse:
    """One project."""
    return JsonResponse(project_shown(await directory_of(request).project(project_id)))


@router.route("POST", _PROJECT)
async def update_project(request: Request, project_id: str) -> HttpResponse:
    """Give a project another `name`, or another `weight`."""
    wished = read_changed_project(await body_of(request))
    project = await directory_of(request).update_project(actor_of(request), project_id, wished)
    return JsonResponse(project_shown(project))


@router.route("POST", f"{_PROJECT}/archive")
async def archive_project(request: Request, project_id: str) -> HttpResponse:
    """End a project for good: its keys open nothing any more."""
    return JsonResponse(project_shown(await directory_of(request).archive_project(actor_of(request), project_id)))


@router.route("GET", _MODELS)
async def retrieve_models(request: Request, project_id: str) -> HttpResponse:
    """Which models a project may use; all but none where nobody said it."""
    return JsonResponse(models_shown(await directory_of(request).project(project_id)))


@router.route("POST", _MODELS)
async def update_models(request: Request, project_id: str) -> HttpResponse:
    """Say which models a project may use. The others are not there for it."""
    models = read_models(await body_of(request))
    return JsonResponse(models_shown(await directory_of(request).permit_models(actor_of(request), project_id, models)))


@router.route("DELETE", _MODELS)
async def delete_models(request: Request, project_id: str) -> HttpResponse:
    """Let a project use all models."""
    await directory_of(request).permit_models(actor_of(request), project_id, None)
    return JsonResponse(ModelsDeleted())


@router.route("GET", _ACCOUNTS, query=PageQuery)
async def list_accounts(request: Request, query: PageQuery, project_id: str) -> HttpResponse:
    """The service accounts of a project."""
    page = await directory_of(request).accounts(project_id, after=query.after, limit=query.limit)
    return page_of(page, [account_shown(each) for each in page.records])


@router.route("POST", _ACCOUNTS)
async def create_account(request: Request, project_id: str) -> HttpResponse:
    """A service account, and its first key, whose value is shown here and nowhere else."""
    directory, actor = directory_of(request), actor_of(request)
    name, wish = read_account(await body_of(request))
    return JsonResponse(account_shown(*await directory.create_account(actor, project_id, name, wish)))


@router.route("GET", f"{_ACCOUNTS}/{{account_id}}")
async def retrieve_account(request: Request, project_id: str, account_id: str) -> HttpResponse:
    """One service account."""
    return JsonResponse(account_shown(await directory_of(request).account(project_id, account_id)))


@router.route("POST", f"{_ACCOUNTS}/{{account_id}}")
async def update_account(request: Request, project_id: str, account_id: str) -> HttpResponse:
    """Give a service account another `name`."""
    name = read_renamed_account(await body_of(request))
    account = await directory_of(request).rename_account(actor_of(request), project_id, account_id, name)
    return JsonResponse(account_shown(account))


@router.route("DELETE", f"{_ACCOUNTS}/{{account_id}}")
async def delete_account(request: Request, project_id: str, account_id: str) -> HttpResponse:
    """End a service account, and all of its keys."""
    await directory_of(request).delete_account(actor_of(request), project_id, account_id)
    return JsonResponse(Deleted(account_id, "organization.project.service_account.deleted"))


@router.route("POST", f"{_ACCOUNTS}/{{account_id}}/api_keys")
async def create_key(request: Request, project_id: str, account_id: str) -> HttpResponse:
    """Another key of a service account, whose value is shown here and nowhere else."""
    wish = read_key(await body_of(request))
    return JsonResponse(
        made_shown(await directory_of(request).create_key(actor_of(request), project_id, account_id, wish))
    )


@router.route("GET", _KEYS, query=KeysQuery)
async def list_keys(request: Request, query: KeysQuery, project_id: str) -> HttpResponse:
    """The keys of a project, without their values."""
    directory = directory_of(request)
    page = await directory.keys(project_id, after=query.after, limit=query.limit)
    if query.owner_project_access == "inactive":  # whose owner has no access: here a key goes with its owner
        page = RecordPage[Key]([], False, None)
    owners, used = await directory.owners(page.records), await directory.last_used(page.records)
    return page_of(page, [key_shown(*each) for each in zip(page.records, owners, used, strict=True)])


@router.route("GET", f"{_KEYS}/{{key_id}}")
async def retrieve_key(request: Request, project_id: str, key_id: str) -> HttpResponse:
    """One key, without its value."""
    return await _key(request, await directory_of(request).key(project_id, key_id))


@router.route("POST", f"{_KEYS}/{{key_id}}")
async def update_key(request: Request, project_id: str, key_id: str) -> HttpResponse:
    """Give a key other `scopes`, or have it expire."""
    wished = read_changed_key(await body_of(request))
    key = await directory_of(request).change_key(actor_of(request), project_id, key_id, wished)
    return await _key(request, key)


@router.route("DELETE", f"{_KEYS}/{{key_id}}")
async def delete_key(request: Request, project_id: str, key_id: str) -> HttpResponse:
    """End a key: it opens nothing any more, within a second in all processes."""
    await directory_of(request).delete_key(actor_of(request), project_id, key_id)
    return JsonResponse(Deleted(key_id, "organization.project.api_key.deleted"))


async def _key(request: Request, key: Key) -> HttpResponse:
    directory = directory_of(request)
    (owner,), (used,) = await directory.owners([key]), await directory.last_used([key])
    return JsonResponse(key_shown(key, owner, used))
