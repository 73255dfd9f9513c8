// story.js: tells a failed run: which rule broke, what happened to the processes, and what the client
// and the room of the first violation went through.

const LINES = 60;

/**
 * @typedef {object} Summary
 * @property {boolean} isClean @property {string} hash @property {number} virtualMs
 * @property {number} events @property {number} cpuMs @property {number} checks
 * @property {number} deliveries @property {number} inflicted faults
 * @property {{id: string, claim: string, violations: number, examples: string[]}[]} broken
 * @property {string[]} faults of programs @property {any} end what the director says
 * @property {string[]} [story]
 */

/** @param {Summary} summary @param {readonly string[]} trace @returns {string[]} */
export function tell({ broken, faults, end }, trace) {
  const lines = [];
  for (const { id, claim, violations, examples } of broken)
    lines.push(`${id}: ${claim}. ${violations} times it did not hold:`, ...examples.map(indent));
  if (faults.length > 0) lines.push('errors that nothing caught:', ...faults.map(indent));
  if (end === null) lines.push('the run did not end');
  for (const name of ['unmet', 'differences', 'oddities', 'disordered', 'overlapping', 'kept'])
    if (end !== null && end[name]?.length > 0)
      lines.push(`${name}:`, ...end[name].slice(0, 5).map(indent));
  if (end?.unmarked) lines.push(end.unmarked);
  if (end?.repeated) lines.push(`${end.repeated} webhooks were repeated without need`);
  const isOfStory = filterFor(broken[0]?.examples[0] ?? '');
  const some = trace.filter(isOfStory);
  lines.push('', 'what happened:', ...some.slice(-LINES).map((line) => indent(line.trimEnd())));
  return lines;
}

/** @param {string} example of a violation */
function filterFor(example) {
  const client = /client (\d+)/.exec(example)?.[1];
  const room = /\b((?:[a-z]+\.[\w.]+)|lobby|door|presence-0)\b/.exec(
    example.replace(/^[\d.]+ s: /, ''),
  )?.[1];
  return (/** @type {string} */ line) => {
    if (!line.includes(' record ')) return !line.includes(' log info: fast paths');
    if (/"type":"(?:start|stop|end)"/.test(line)) return true;
    const isOfClient = client !== undefined && line.includes(`"client":${client},`);
    if (isOfClient)
      return room === undefined || line.includes(`"${room}"`) || !line.includes('"room"');
    return client === undefined && room !== undefined && line.includes(room);
  };
}

/** @param {string} line */
function indent(line) {
  return `  ${line.length > 240 ? `${line.slice(0, 240)}…` : line}`;
}
