// rate-limit.test.js: the message rate limit, the truth of `retryAfter`, and mode `observe`.
//
// The first server gives a token every 600 ms, so `retryAfter` is always 1 there. A second server
// refills six a minute, for larger values. `retryAfter` is true if a message passes that many
// seconds after the refusal, and not a second earlier.

import { pause } from '../harness/run.js';
import { scrape, startServer, until, urlOf } from '../harness/server.js';
import { WsClient } from '../harness/ws-client.js';
import { checkedTest } from '../helpers/checks.js';

const MESSAGES = 300;
const BURST = 100;
const SLOW_PER_MINUTE = 6;
const RATES = Object.freeze({
  FANFARE_MESSAGES_RATE: `${BURST}/min burst ${BURST}`,
  FANFARE_MESSAGES_RATE_PER_IP: `${BURST}/min burst ${BURST}`,
});
/** The answer is under way for a moment, and the server's clock starts before ours. */
const TRAVEL_MS = 50;
const WAIT_MS = 5000;

checkedTest(
  'the message rate limit admits its burst, `retryAfter` is true, and `observe` only counts',
  async (test) => {
    const start = (/** @type {Record<string, string>} */ env) =>
      startServer(test, { WORKERS: '2', ...env });
    const [enforcing, slow, observing] = await Promise.all([
      start(RATES),
      start({
        FANFARE_MESSAGES_PER_MINUTE: String(SLOW_PER_MINUTE),
        FANFARE_MESSAGES_PER_MINUTE_PER_IP: String(SLOW_PER_MINUTE),
        FANFARE_MESSAGES_BURST: '5',
        FANFARE_MESSAGES_BURST_PER_IP: '5',
      }),
      start({ ...RATES, FANFARE_LIMITS: 'observe' }),
    ]);

    const first = await flood(test, enforcing, MESSAGES);
    test.check(`enforce: of ${MESSAGES} at once pass`, BURST, first.passed);
    test.check(
      'enforce: the others get RATE_LIMIT_EXCEEDED',
      MESSAGES - BURST,
      first.refused.length,
    );
    test.check(
      'enforce: with retryAfter in whole seconds, ≥ 1',
      MESSAGES - BURST,
      first.refused.filter(({ retryAfter }) => Number.isInteger(retryAfter) && retryAfter >= 1)
        .length,
    );
    await tellsTheTruth(test, `${BURST} a minute`, first);
    test.check('enforce: still connected', 'yes', first.client.isOpen ? 'yes' : 'no');
    const { values } = await scrape(enforcing.metricsPort);
    test.check(
      'enforce: counted in websocket_errors_total',
      first.refused.length + first.laterRefused,
      values.get('websocket_errors_total{code="RATE_LIMIT_EXCEEDED"}'),
    );

    const second = await flood(test, slow, 20);
    test.check(`${SLOW_PER_MINUTE} a minute: of 20 at once pass`, 5, second.passed);
    await tellsTheTruth(test, `${SLOW_PER_MINUTE} a minute`, second);

    const third = await flood(test, observing, MESSAGES);
    test.check(`observe: of ${MESSAGES} at once pass`, MESSAGES, third.passed);
    const observed = (await scrape(observing.metricsPort)).values;
    test.check(
      'observe: counted per connection',
      MESSAGES - BURST,
      observed.get('fanfare_limits_observed_total{limit="messages"}'),
    );
    test.check(
      'observe: counted per address',
      MESSAGES - BURST,
      observed.get('fanfare_limits_observed_total{limit="messages_per_ip"}'),
    );
  },
);

/**
 * @typedef
 *   {{client: WsClient, passed: number, refused: {retryAfter: number, atMs: number}[], laterRefused: number}}
 *   Flood
 */

/**
 * Sends that many messages in one write and awaits an answer to each.
 * @param {import('../helpers/checks.js').Checks} test
 * @param {import('../harness/server.js').Server} server
 * @param {number} messages
 * @returns {Promise<Flood>}
 */
async function flood(test, server, messages) {
  /** @type {Flood} */
  const result = { client: /** @type {any} */ (null), passed: 0, refused: [], laterRefused: 0 };
  const onText = (/** @type {string} */ text) => {
    const reply = JSON.parse(text);
    if (reply.type === 'echo') result.passed++;
    else if (reply.error === 'RATE_LIMIT_EXCEEDED')
      result.refused.push({ retryAfter: reply.retryAfter, atMs: performance.now() });
  };
  result.client = await new WsClient(urlOf(server), { onText }).open();
  test.after(() => result.client.close());
  result.client.sendAll(
    Array.from({ length: messages }, (_, n) => JSON.stringify({ type: 'echo', payload: n })),
  );
  await until(
    () => result.passed + result.refused.length === messages,
    WAIT_MS,
    'an answer to each',
  ).catch(() => {});
  return result;
}

/**
 * A message is refused a second before `retryAfter` and passes at that time. A refused message
 * costs nothing.
 * @param {import('../helpers/checks.js').Checks} test @param {string} name @param {Flood} flooded
 */
async function tellsTheTruth(test, name, flooded) {
  const { client, refused } = flooded;
  // The last refusal: at that time all tokens were gone, and no token has come meanwhile.
  const { retryAfter, atMs } = refused[refused.length - 1];
  await pause((retryAfter - 1) * 1000 - (performance.now() - atMs));
  const early = await client.request({ type: 'ping' });
  if (early.type === 'error') flooded.laterRefused++;
  await pause(retryAfter * 1000 + TRAVEL_MS - (performance.now() - atMs));
  const due = await client.request({ type: 'ping' });
  test.check(
    `${name}: retryAfter ${retryAfter}: a second earlier`,
    'RATE_LIMIT_EXCEEDED',
    early.error ?? early.type,
  );
  test.check(`${name}: retryAfter ${retryAfter}: at that time`, 'pong', due.error ?? due.type);
}
