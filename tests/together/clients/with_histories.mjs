// Clients that send their whole history with every turn, over Chat Completions: each conversation is one chain.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText, isStepCount, streamText, tool } from 'ai'
import OpenAI from 'openai'
import { z } from 'zod'

const TURNS = 20
const model = process.env.MODEL
const root = process.env.OPENAI_BASE_URL.replace(/v1$/, '')
const weather = ({ city }) => `18 degrees in ${city}`
const city = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }

function turns() {
  const rest = Array.from({ length: TURNS - 1 }, (_, n) =>
    n % 2 ? `Count to ${n}.` : `What is the weather in City${n}? Use the tool.`)
  return [`My name is ${randomUUID()}.`, ...rest]
}

const ask = async (path) => (await fetch(root + path)).json()

async function isOneChain(said) {
  const trees = (await ask('console/api/trees?limit=100')).data.filter((tree) => tree.title?.includes(said[0]))
  assert.equal(trees.length, 1)
  const depths = (await ask(`console/api/trees/${trees[0].id}`)).turns.map((turn) => turn.depth)
  assert.deepEqual(depths.sort((a, b) => a - b), Array.from({ length: TURNS + TURNS / 2 }, (_, n) => n + 1))
}

export async function test_openai() {
  const client = new OpenAI({ maxRetries: 0 })
  const named = { name: 'get_weather', description: 'The weather of a city.', parameters: city }
  const asked = { model, tools: [{ type: 'function', function: named }] }
  const [said, messages] = [turns(), []]
  for (const [number, content] of said.entries()) {
    messages.push({ role: 'user', content })
    for (;;) {
      const stream = number % 3 === 2
      const made = stream
        ? await client.chat.completions.stream({ ...asked, messages }).finalChatCompletion()
        : await client.chat.completions.create({ ...asked, messages })
      const { message } = made.choices[0]
      messages.push(message)
      if (!message.tool_calls?.length) break
      for (const call of message.tool_calls) {
        const content = weather(JSON.parse(call.function.arguments))
        messages.push({ role: 'tool', tool_call_id: call.id, content })
      }
    }
  }
  await isOneChain(said)
}

export async function test_ai_sdk() {
  const inputSchema = z.object({ city: z.string() })
  const tools = { get_weather: tool({ description: 'The weather of a city.', inputSchema, execute: weather }) }
  const asked = { model: createOpenAI().chat(model), tools, stopWhen: isStepCount(4), maxRetries: 0 }
  const [said, messages] = [turns(), []]
  for (const [number, content] of said.entries()) {
    messages.push({ role: 'user', content })
    const result = number % 3 === 2 ? streamText({ ...asked, messages }) : await generateText({ ...asked, messages })
    if (number % 3 === 2) await result.consumeStream()
    messages.push(...(await result.responseMessages))
  }
  await isOneChain(said)
}
