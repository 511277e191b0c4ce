// Runs the cases of a client for Node: `node runner.mjs with_ai_sdk.mjs`. What runner.py says holds here too.

import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const CASE_SECONDS = 30

console.log = console.info = console.debug = console.error

async function outcome(run) {
  let clock
  const ended = new Promise((_, reject) => {
    clock = setTimeout(() => reject(new Error(`took more than ${CASE_SECONDS} s`)), CASE_SECONDS * 1000)
  })
  try {
    await Promise.race([run(), ended])
    return null
  } catch (error) {
    return `${error?.stack ?? error}`
  } finally {
    clearTimeout(clock)
  }
}

const cases = await import(pathToFileURL(process.argv[2]))
for await (const name of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await outcome(cases[name]))}\n`)
}
process.exit()
