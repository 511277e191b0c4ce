"""Servers that are asked by Chat Completions in a process: their kinds."""

from service.features.chat_servers.servers import ByChat, LlamaByChat, VllmByChat
from service.process import EngineKinds, Feature


class ChatServersFeature(Feature):
    """Servers that are asked by Chat Completions."""

    def engines(self, kinds: EngineKinds) -> None:
        kinds.servers["chat"] = lambda settings: ByChat(shared=settings.several_tenants)
        kinds.templating["vllm"] = lambda _: VllmByChat()
        kinds.templating["llama"] = lambda settings: LlamaByChat(shared=settings.several_tenants)


FEATURE = ChatServersFeature()
