"""The same stub engine over gRPC, as smg asks a vLLM that speaks its protocol.

    .venv-peer-smg/bin/python -m bench._peers.grpc_engine PORT PACE_PORT MODEL_FOLDER

It runs in smg's environment, which has the protocol. POST /pace?ms=5 at PACE_PORT changes how fast it is.
"""

# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

import asyncio
import re
import sys
import time

import grpc
import uvloop
from smg_grpc_proto.generated import vllm_engine_pb2 as wire
from smg_grpc_proto.generated import vllm_engine_pb2_grpc as service

from bench._peers.answer import PROMPT_TOKENS, RETURN, TOKENS, sampled

MODEL = "stub"


class Engine(service.VllmEngineServicer):
    """Answers each request alike."""

    def __init__(self, folder: str) -> None:
        self.seconds = 0.0
        self._folder, self._began = folder, time.time()
        ids = sampled(TOKENS)
        self._chunks = [
            wire.GenerateResponse(
                chunk=wire.GenerateStreamChunk(
                    token_ids=[id], prompt_tokens=PROMPT_TOKENS, completion_tokens=place, cached_tokens=0
                )
            )
            for place, id in enumerate(ids, 1)
        ]
        self._end = wire.GenerateResponse(
            complete=wire.GenerateComplete(
                output_ids=ids,
                finish_reason="stop",
                prompt_tokens=PROMPT_TOKENS,
                completion_tokens=len(ids),
                cached_tokens=0,
                matched_token_id=RETURN,
            )
        )

    async def Generate(self, request, context):  # noqa: N802
        """A generation."""
        if request.stream:
            due = time.monotonic()
            for chunk in self._chunks:
                if self.seconds:
                    due += self.seconds
                    await asyncio.sleep(due - time.monotonic())
                yield chunk
        elif self.seconds:
            await asyncio.sleep(self.seconds * TOKENS)
        yield self._end

    async def HealthCheck(self, request, context):  # noqa: N802
        """It is well."""
        return wire.HealthCheckResponse(healthy=True, message="ok")

    async def Abort(self, request, context):  # noqa: N802
        """Nothing is left to abort."""
        return wire.AbortResponse()

    async def GetModelInfo(self, request, context):  # noqa: N802
        """What it serves."""
        return wire.GetModelInfoResponse(
            model_path=self._folder,
            is_generation=True,
            max_context_length=131_072,
            vocab_size=201_088,
            served_model_name=MODEL,
            tokenizer_path=self._folder,
            model_type="gpt_oss",
            architectures=["GptOssForCausalLM"],
            eos_token_ids=[RETURN, 199_999, 200_012],
            pad_token_id=199_999,
            bos_token_id=199_998,
            max_req_input_len=131_072,
        )

    async def GetServerInfo(self, request, context):  # noqa: N802
        """What it is."""
        return wire.GetServerInfoResponse(
            server_type="vllm-grpc",
            uptime_seconds=time.time() - self._began,
            data_parallel_size=1,
            block_size=16,
            max_num_seqs=1024,
        )

    async def GetLoads(self, request, context):  # noqa: N802
        """How much it has to do."""
        load = wire.SchedulerLoad(max_running_requests=1024, max_total_num_tokens=10**7)
        return wire.GetLoadsResponse(version="0.32.0", dp_rank_count=1, loads=[load])


async def main(port: int, pace_port: int, folder: str) -> None:
    """Serve for ever."""
    engine, server = Engine(folder), grpc.aio.server()
    service.add_VllmEngineServicer_to_server(engine, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()

    async def paced(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if found := re.match(rb"POST /pace\?ms=([0-9.]+) ", head):
            engine.seconds = float(found[1]) / 1000
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    await asyncio.start_server(paced, "127.0.0.1", pace_port)
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
