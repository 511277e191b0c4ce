// The agents of LibreChat: six turns with a tool each, of which one is stopped amid its tool.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'

// its modules for import don't find one of OpenTelemetry's
const require = createRequire(import.meta.url)
const { HumanMessage } = require('@langchain/core/messages')
const { tool } = require('@langchain/core/tools')
const { Providers, Run } = require('@librechat/agents')

const CITIES = ['Paris', 'London', 'Berlin', 'Madrid', 'Rome', 'Vienna']
const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }

async function turns(useResponsesApi) {
  const history = []
  let stop
  const weather = tool(
    ({ city }) => {
      if (city !== 'Berlin' || stop.signal.aborted) return `18 degrees in ${city}`
      stop.abort()
      return new Promise(() => {})
    },
    { name: 'get_weather', description: 'The weather of a city.', schema },
  )
  const answered = async (city, signal) => {
    const configuration = { baseURL: process.env.OPENAI_BASE_URL }
    const model = { provider: Providers.OPENAI, model: process.env.MODEL, apiKey: 'none', streaming: true }
    const llmConfig = { ...model, streamUsage: true, useResponsesApi, configuration }
    const graphConfig = { type: 'standard', llmConfig, tools: [weather], instructions: 'Be kind.' }
    const run = await Run.create({ runId: `run-${city}`, graphConfig, returnContent: true, skipCleanup: true })
    const config = { configurable: { thread_id: 't', user_id: 'ada' }, version: 'v2', signal }
    await run.processStream({ messages: [...history] }, config)
    return run.getRunMessages()
  }
  for (const city of CITIES) {
    history.push(new HumanMessage(`What is the weather in ${city}? Use the tool.`))
    stop ??= new AbortController()
    const made = await answered(city, stop.signal).catch((error) => {
      if (!stop.signal.aborted) throw error
      return answered(city)
    })
    history.push(...made)
    assert.match(made.at(-1).text, new RegExp(`18 degrees in ${city}`))
    if (stop.signal.aborted) stop = { signal: { aborted: true } }
  }
  assert(stop.signal.aborted)
}

export async function test_six_turns_with_tools_by_responses() {
  await turns(true)
}

export async function test_six_turns_with_tools_by_chat() {
  await turns(false)
}
