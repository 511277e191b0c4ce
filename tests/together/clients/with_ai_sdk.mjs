// Vercel's AI SDK: tools over several steps, streams with reasoning, structured output, history of each kind.

import assert from 'node:assert/strict'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText, isStepCount, Output, streamText, tool } from 'ai'
import { z } from 'zod'

const openai = createOpenAI()
const model = openai.responses(process.env.MODEL)
const tools = {
  get_weather: tool({
    description: 'The weather of a city.',
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `18 degrees in ${city}`,
  }),
}
const looped = { model, tools, stopWhen: isStepCount(4), maxRetries: 0 }
const plain = { model, maxRetries: 0, include: { requestBody: true } }
const prompt = 'What is the weather in Paris? Use the tool.'
const introduced = 'Hello! My name is Ada. What is the weather in Paris? Use the tool.'
const thinking = (more) => ({ openai: { forceReasoning: true, reasoningSummary: 'auto', ...more } })

const asks = (content) => ({ role: 'user', content })

async function all(stream) {
  const parts = []
  for await (const part of stream) {
    if (part.type === 'error') throw part.error
    parts.push(part)
  }
  return parts
}

export async function test_a_tool_s_output_is_in_the_answer() {
  const result = await generateText({ ...looped, prompt })
  assert.equal(result.steps.length, 2)
  assert.match(result.text, /18 degrees in Paris/)
}

export async function test_parallel_calls_are_all_answered() {
  const result = await generateText({ ...looped, prompt: 'What is the weather in Paris and London? Use the tool.' })
  assert.deepEqual(result.steps[0].toolCalls.map((call) => call.input.city), ['Paris', 'London'])
  assert.match(result.text, /18 degrees in Paris[^]*18 degrees in London/)
}

export async function test_a_run_with_a_tool_is_streamed() {
  const result = streamText({ ...looped, prompt })
  const kinds = (await all(result.fullStream)).map((part) => part.type)
  const wanted = ['tool-input-delta', 'tool-call', 'tool-result', 'text-delta']
  assert.deepEqual(wanted.filter((kind) => !kinds.includes(kind)), [])
  assert.equal(kinds.at(-1), 'finish')
  assert.match(await result.text, /18 degrees in Paris/)
}

export async function test_a_tool_is_chosen_by_its_name() {
  const toolChoice = { type: 'tool', toolName: 'get_weather' }
  const result = await generateText({ ...plain, tools, toolChoice, prompt: 'Good morning.' })
  assert.equal(typeof result.toolCalls[0].input.city, 'string')
}

export async function test_structured_output_comes_by_a_zod_schema() {
  const schema = z.object({ city: z.string(), inhabitants: z.number().int() })
  const result = await generateText({ ...plain, output: Output.object({ schema }), prompt: 'Tell me of Paris.' })
  assert.deepEqual(schema.parse(result.output), result.output)
}

export async function test_structured_output_is_streamed_in_parts() {
  const schema = z.object({ cities: z.array(z.string()).min(1) })
  const result = streamText({ ...plain, output: Output.object({ schema }), prompt: 'Name cities.' })
  const parts = []
  for await (const part of result.partialOutputStream) parts.push(part)
  assert.deepEqual(parts.at(-1), schema.parse(await result.output))
}

export async function test_a_summary_of_reasoning_is_streamed_as_reasoning() {
  const result = streamText({ ...plain, prompt: 'Say hello.', providerOptions: thinking() })
  const written = (await all(result.fullStream)).filter((part) => part.type === 'reasoning-delta')
  assert.ok(written.map((part) => part.text).join(''))
  assert.ok(await result.reasoningText)
}

export async function test_stored_items_are_sent_back_as_references() {
  const first = await generateText({ ...looped, prompt: introduced, providerOptions: thinking() })
  const messages = [asks(introduced), ...first.responseMessages, asks('What is my name?')]
  const second = await generateText({ ...plain, messages, providerOptions: thinking() })
  assert.match(JSON.stringify(second.request.body), /item_reference/)
  assert.match(second.text, /Ada/)
}

export async function test_a_history_without_a_store_brings_its_sealed_reasoning_back() {
  const providerOptions = thinking({ store: false })
  const first = await generateText({ ...looped, prompt: introduced, providerOptions })
  const messages = [asks(introduced), ...first.responseMessages, asks('What is my name?')]
  const second = await generateText({ ...plain, messages, providerOptions })
  assert.match(JSON.stringify(second.request.body), /encrypted_content/)
  assert.match(second.text, /Ada/)
}

export async function test_what_was_said_is_recalled_by_previous_response_id() {
  const first = await generateText({ ...plain, prompt: 'My name is Ada.' })
  const previousResponseId = first.providerMetadata.openai.responseId
  const providerOptions = { openai: { previousResponseId } }
  const second = await generateText({ ...plain, prompt: 'What is my name?', providerOptions })
  assert.match(second.text, /Ada/)
}

const hosted = (result, toolName) => result.toolResults.filter((each) => each.toolName === toolName).map((each) => each.output)
const goesOn = async (result, asked, tools) => {
  const messages = [asks(asked), ...result.response.messages, asks('Say hello.')]
  assert.ok((await generateText({ ...plain, tools, messages })).text)
}

export async function test_a_call_of_the_service_s_is_approved_and_made() {
  const adding = {
    mcp: openai.tools.mcp({
      serverLabel: 'maths',
      serverUrl: process.env.MCP_URL,
      allowedTools: ['add'],
      requireApproval: 'always',
    }),
  }
  const messages = [asks('What is 2 plus 40? Use the add tool.')]
  const asked = await generateText({ ...plain, tools: adding, messages })
  const [request] = asked.content.filter((part) => part.type === 'tool-approval-request')
  messages.push(...asked.response.messages, {
    role: 'tool',
    content: [{ type: 'tool-approval-response', approvalId: request.approvalId, approved: true, providerExecuted: true }],
  })
  const made = await generateText({ ...plain, tools: adding, messages })
  assert.match(made.text, /42/)
}

export async function test_a_call_of_the_service_s_is_streamed() {
  const adding = {
    mcp: openai.tools.mcp({ serverLabel: 'maths', serverUrl: process.env.MCP_URL, requireApproval: 'never' }),
  }
  const result = streamText({ ...plain, tools: adding, prompt: 'What is 2 plus 40? Use the add tool.' })
  const kinds = (await all(result.fullStream)).map((part) => part.type)
  assert.ok(kinds.includes('tool-call') && kinds.includes('tool-result'))
  assert.match(await result.text, /42/)
}

export async function test_the_web_is_searched_by_the_service_and_cited() {
  const searching = { web_search: openai.tools.webSearch({ searchContextSize: 'low' }) }
  const asked = 'Search the web for "high water" please.'
  const result = await generateText({ ...plain, tools: searching, prompt: asked })
  assert.deepEqual(hosted(result, 'web_search').map((each) => each.action.type), ['search', 'openPage'])
  assert.match(result.sources[0].url, /tides\.md$/)
  await goesOn(result, asked, searching)
}

export async function test_code_is_run_by_the_service() {
  const running = { code_interpreter: openai.tools.codeInterpreter() }
  const asked = 'Use python: print(6 * 7)'
  const result = await generateText({ ...plain, tools: running, prompt: asked })
  assert.deepEqual(hosted(result, 'code_interpreter')[0].outputs, [{ type: 'logs', logs: '42\n' }])
  assert.match(result.text, /42/)
  await goesOn(result, asked, running)
}

export async function test_files_are_searched_by_the_service() {
  const searching = { file_search: openai.tools.fileSearch({ vectorStoreIds: ['vs_1'], maxNumResults: 2 }) }
  const providerOptions = { openai: { include: ['file_search_call.results'] } }
  const asked = 'Search my files for "tides".'
  const result = await generateText({ ...plain, tools: searching, providerOptions, prompt: asked })
  assert.deepEqual(hosted(result, 'file_search')[0].results.map((each) => each.filename), ['tides.md', 'moon.md'])
  await goesOn(result, asked, searching)
}

export async function test_a_shell_s_commands_are_run_here() {
  const shell = {
    shell: openai.tools.shell({
      execute: async ({ action }) => ({
        output: action.commands.map((command) => ({
          stdout: `ran ${command}\n`,
          stderr: '',
          outcome: { type: 'exit', exitCode: 0 },
        })),
      }),
    }),
  }
  const result = await generateText({ ...looped, tools: shell, prompt: 'Run the shell command "echo heron" for me.' })
  assert.match(result.text, /ran echo heron/)
}
