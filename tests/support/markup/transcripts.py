"""Answers of models in each markup, from their makers' documents, each with its source.

Names of functions and words are the documents' or of their kind. Turns of every markup are in `writing`.
"""

from typing import NamedTuple

from tests.support.markup.writing import DSML, mark


class Transcript(NamedTuple):
    """A stream, and whether its prompt ended inside of reasoning."""

    markup: str
    text: str
    thinking: bool = False


END = "<|im_end|>"

DOCUMENTED: dict[str, Transcript] = {
    "hermes: arguments first": Transcript(
        "hermes",
        '<tool_call>\n{"arguments": {"symbol": "TSLA"}, "name": "get_stock_fundamentals"}\n</tool_call>' + END,
        # NousResearch/Hermes-2-Pro-Llama-3-8B, README: Prompt Format for Function Calling
    ),
    "qwen: two calls behind reasoning": Transcript(
        "qwen",
        "<think>\nOkay, the user asks for two temperatures.\n</think>\n\n"
        '<tool_call>\n{"name": "get_current_temperature", "arguments": {"location": "San Francisco, CA, USA"}}\n'
        '</tool_call>\n<tool_call>\n{"name": "get_temperature_date", "arguments": '
        '{"location": "San Francisco, CA, USA", "date": "2024-10-01"}}\n</tool_call>' + END,
        # Qwen docs, Function Calling: get_current_temperature
    ),
    "qwen: no thinking": Transcript("qwen", "The temperature is **26.1\u00b0C**." + END),
    "coder: a value of many lines": Transcript(
        "qwen-coder",
        "I write it.\n<tool_call>\n<function=write>\n<parameter=path>\na.py\n</parameter>\n<parameter=content>\n"
        'def f():\n    return "<b>"\n\nprint(f())\n</parameter>\n</function>\n</tool_call>' + END,
        # Qwen/Qwen3-Coder-480B-A35B-Instruct, chat_template.jinja
    ),
    "glm: a call behind reasoning": Transcript(
        "glm",
        "\n<think>The user wants the weather.</think>\nLet me look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
        "<arg_value>Beijing</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>" + END,
        # zai-org/GLM-4.5, chat_template.jinja
    ),
    "kimi: a call": Transcript(
        "kimi",
        "I check the weather.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "Beijing"}<|tool_call_end|><|tool_calls_section_end|>' + END,
        # moonshotai/Kimi-K2-Instruct-0905, docs/tool_call_guidance.md
    ),
    "deepseek v3: two calls": Transcript(
        "deepseek-v3",
        f"{mark('tool calls begin')}{mark('tool call begin')}function{mark('tool sep')}get_weather\n```json\n"
        f'{{"city": "Paris"}}\n```{mark("tool call end")}\n{mark("tool call begin")}function{mark("tool sep")}'
        f'get_weather\n```json\n{{"city": "Rome"}}\n```{mark("tool call end")}{mark("tool calls end")}{END}',
        # deepseek-ai/DeepSeek-V3-0324, tokenizer_config.json: chat_template
    ),
    "deepseek v3.1: two calls": Transcript(
        "deepseek-v3.1",
        f"{mark('tool calls begin')}{mark('tool call begin')}get_weather{mark('tool sep')}"
        f'{{"city": "Paris"}}{mark("tool call end")}{mark("tool call begin")}get_weather{mark("tool sep")}'
        f'{{"city": "Rome"}}{mark("tool call end")}{mark("tool calls end")}{END}',
        # deepseek-ai/DeepSeek-V3.1, README: ToolCall
    ),
    "deepseek v3.2: a call behind reasoning": Transcript(
        "deepseek-v3.2",
        f'I need the date first.</think>\n\n<{DSML}function_calls>\n<{DSML}invoke name="get_weather">\n'
        f'<{DSML}parameter name="city" string="true">Hangzhou</{DSML}parameter>\n'
        f'<{DSML}parameter name="days" string="false">1</{DSML}parameter>\n</{DSML}invoke>\n'
        f"</{DSML}function_calls>{END}",
        # deepseek-ai/DeepSeek-V3.2, encoding/encoding_dsv32.py
        thinking=True,
    ),
    "minimax: two calls": Transcript(
        "minimax",
        'I search.</think>\n\n<minimax:tool_call>\n<invoke name="search_web">\n'
        '<parameter name="query_tag">["technology", "events"]</parameter>\n'
        '<parameter name="query_list">["OpenAI", "latest"]</parameter>\n</invoke>\n<invoke name="search_web">\n'
        '<parameter name="query_tag">["technology"]</parameter>\n</invoke>\n</minimax:tool_call>' + END,
        # MiniMaxAI/MiniMax-M2, docs/tool_calling_guide.md
        thinking=True,
    ),
    "seed: a call behind reasoning": Transcript(
        "seed",
        "<seed:think>I need the weather.</seed:think><seed:tool_call>\n<function=get_weather>\n"
        "<parameter=city>Barcelona</parameter>\n</function>\n</seed:tool_call>" + END,
        # ByteDance-Seed/Seed-OSS-36B-Instruct, chat_template.jinja
    ),
    "gemma 4: a call": Transcript(
        "gemma-4",
        '<|tool_call>call:get_weather{city:<|"|>Paris "here"<|"|>,near:[<|"|>a<|"|>,<|"|>b<|"|>]}<tool_call|>' + END,
        # vLLM 0.32, parser/gemma4.py
    ),
    "llama 4: two calls": Transcript(
        "llama-4",
        "[get_weather(city='Paris', days=3, near=['a', 'b']), now()]" + END,
        # vLLM 0.32, tool_parsers/llama4_pythonic_tool_parser.py
    ),
    "kimi k3: a call behind an answer": Transcript(
        "kimi-k3",
        "<|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|>"
        '<|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Paris'
        '<|close|>argument<|sep|><|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>" + END,
        # ggml-org/llama.cpp, models/templates/Kimi-K3.jinja
    ),
    "minimax m3: a list": Transcript(
        "minimax-m3",
        '{0}<tool_call>\n{0}<invoke name="get_weather">{0}<city>Paris{0}</city>{0}<days>3{0}</days>{0}<near>{0}<item>a'
        "{0}</item>{0}<item>5{0}</item>{0}</near>{0}</invoke>\n{0}</tool_call>".format("]<]minimax[>[")
        + END,
        # vLLM 0.32, parser/minimax_m3.py
    ),
}
