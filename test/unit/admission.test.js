import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Admission, AdmissionLease } from '../../src/admission/admission.js';
import { HandshakeRate } from '../../src/admission/handshake-rate.js';
import { createOriginCheck } from '../../src/admission/origin.js';
import { loadConfig } from '../../src/config/config.js';
import { createCounters } from '../../src/observability/counters.js';
import { errorOf, toHttp } from '../../src/protocol/refusal.js';
import { configOf } from '../helpers/config.js';

/** Counts the connections of each address, as the relay does, and remembers the requests. */
class Counter {
  constructor() {
    /** @type {Map<string, number>} */
    this.held = new Map();
    this.calls = 0;
    this.released = 0;
  }

  /** @param {string} address @param {number} cap @param {boolean} force */
  async acquire(address, cap, force) {
    this.calls++;
    const connections = this.held.get(address) ?? 0;
    if (connections >= cap && !force) return { admitted: false, connections };
    this.held.set(address, connections + 1);
    return { admitted: true, connections: connections + 1 };
  }

  /** @param {string} address */
  release(address) {
    this.released++;
    this.held.set(address, (this.held.get(address) ?? 0) - 1);
  }
}

/** @param {Record<string, string>} [env] */
function build(env = {}) {
  const config = configOf(env);
  const health = {
    lag: 0,
    heap: 0,
    open: 0,
    lagMs: () => health.lag,
    heapPercent: () => health.heap,
    openDescriptors: () => health.open,
    descriptorLimit: 1024,
  };
  const addresses = new Counter();
  const counters = createCounters();
  const clock = { nowMs: 0 };
  const admission = new Admission({
    config,
    addresses,
    health,
    counters,
    now: () => clock.nowMs,
    random: () => 0.999,
  });
  return { admission, addresses, health, counters, clock };
}

/** @param {Record<string, string>} [headers] @param {string} [peer] */
function request(headers = {}, peer = '192.0.2.1') {
  return /** @type {import('node:http').IncomingMessage} */ (
    /** @type {unknown} */ ({ headers, socket: { remoteAddress: peer } })
  );
}

/**
 * @param {unknown} decision
 * @returns {{reason: string, status: number, headers: Readonly<Record<string, string>>, body: string}}
 */
function refusal(decision) {
  assert.ok(
    !(decision instanceof AdmissionLease) && !(decision instanceof Promise),
    'refused at once',
  );
  const refused = /** @type {import('../../src/protocol/refusal.js').Refusal} */ (decision);
  return { reason: errorOf(refused), ...toHttp(refused) };
}

test('a request is admitted under its address', async () => {
  const { admission, addresses } = build();
  const admitted = await admission.admitHandshake(request());
  assert.ok(admitted instanceof AdmissionLease);
  assert.equal(admitted.address, '192.0.2.1');
  assert.equal(addresses.held.get('192.0.2.1'), 1);
});

test('if the cap per address is off, admission asks no counter and awaits nothing', () => {
  const { admission, addresses } = build({ FANFARE_MAX_CONNECTIONS_PER_IP_MODE: 'off' });
  const admitted = admission.admitHandshake(request());
  assert.ok(admitted instanceof AdmissionLease);
  admitted.release();
  assert.equal(addresses.calls, 0);
  assert.equal(addresses.released, 0);
});

test('the address is computed only if a limit counts by address', () => {
  const cap = { FANFARE_MAX_CONNECTIONS_PER_IP_MODE: 'off' };
  const counted = build(cap).admission.admitHandshake(request());
  const noMessages = {
    FANFARE_LIMITS: 'off',
    FANFARE_BROADCASTS_PER_MINUTE_PER_IP_MODE: 'enforce',
  };
  const countsBroadcasts = build(noMessages).admission.admitHandshake(request());
  const uncounted = build({ FANFARE_LIMITS: 'off' }).admission.admitHandshake(request());
  assert.ok(
    counted instanceof AdmissionLease &&
      countsBroadcasts instanceof AdmissionLease &&
      uncounted instanceof AdmissionLease,
  );
  assert.equal(countsBroadcasts.address, '192.0.2.1');
  assert.equal(counted.address, '192.0.2.1');
  assert.equal(uncounted.address, '');
});

test('an address over its cap is refused with 429 and a time to wait', async () => {
  const { admission, counters } = build({ FANFARE_MAX_CONNECTIONS_PER_IP: '2' });
  await admission.admitHandshake(request());
  await admission.admitHandshake(request());
  const refused = refusal(await admission.admitHandshake(request()));
  assert.equal(refused.status, 429);
  assert.equal(refused.reason, 'per_ip');
  assert.equal(refused.headers['Retry-After'], '20');
  assert.deepEqual(JSON.parse(refused.body), {
    error: 'per_ip',
    message: 'Too many connections from this address: 2 (FANFARE_MAX_CONNECTIONS_PER_IP).',
  });
  assert.equal(counters.refused.per_ip, 1);
  assert.ok((await admission.admitHandshake(request({}, '192.0.2.2'))) instanceof AdmissionLease);
});

test('a place is given back once, however often it is released', async () => {
  const { admission, addresses } = build();
  const admitted = await admission.admitHandshake(request());
  assert.ok(admitted instanceof AdmissionLease);
  admitted.release();
  admitted.release();
  assert.equal(addresses.released, 1);
});

test('an observed cap admits, holds the place and counts', async () => {
  const { admission, addresses, counters } = build({
    FANFARE_MAX_CONNECTIONS_PER_IP: '1',
    FANFARE_LIMITS: 'observe',
  });
  for (let i = 0; i < 3; i++)
    assert.ok((await admission.admitHandshake(request())) instanceof AdmissionLease);
  assert.equal(counters.observed.connections_per_ip, 2);
  assert.equal(counters.refused.per_ip, 0);
  assert.equal(addresses.held.get('192.0.2.1'), 3);
});

test('if the counter is unavailable, an enforced cap refuses with 503 and an observed one admits', async () => {
  for (const [mode, status] of /** @type {const} */ ([
    ['enforce', 503],
    ['observe', undefined],
  ])) {
    const { admission, addresses } = build({ FANFARE_MAX_CONNECTIONS_PER_IP_MODE: mode });
    addresses.acquire = () => Promise.reject(new Error('the relay link is closed'));
    const decision = await admission.admitHandshake(request());
    assert.equal('code' in decision ? refusal(decision).status : undefined, status);
    if (decision instanceof AdmissionLease) decision.release();
    assert.equal(addresses.released, 0);
  }
});

test('a worker that lags, or is short of memory or descriptors, refuses before it asks the counter', () => {
  for (const [change, reason] of /** @type {const} */ ([
    [{ lag: 501 }, 'loop_lag'],
    [{ heap: 81 }, 'memory'],
    [{ open: 769 }, 'descriptors'],
  ])) {
    const { admission, addresses, health, counters } = build();
    Object.assign(health, change);
    const refused = refusal(admission.admitHandshake(request()));
    assert.equal(refused.status, 503);
    assert.equal(refused.reason, reason);
    assert.equal(refused.headers['Retry-After'], '10');
    assert.equal(counters.refused[reason], 1);
    assert.equal(addresses.calls, 0);
  }
});

test('a worker admits at the watermarks, and refuses above them', async () => {
  const { admission, health } = build();
  Object.assign(health, { lag: 500, heap: 80, open: 768 });
  assert.ok((await admission.admitHandshake(request())) instanceof AdmissionLease);
});

test('overload is only counted if the limit is observed, and not measured if it is off', async () => {
  const observing = build({ FANFARE_OVERLOAD_MODE: 'observe' });
  observing.health.lag = 9999;
  assert.ok((await observing.admission.admitHandshake(request())) instanceof AdmissionLease);
  assert.equal(observing.counters.observed.loop_lag, 1);
  const off = build({ FANFARE_OVERLOAD_MODE: 'off' });
  off.health.lagMs = () => assert.fail('asked');
  assert.ok((await off.admission.admitHandshake(request())) instanceof AdmissionLease);
});

test('a page of another origin is refused with 403, and the answer does not repeat its name', () => {
  const { admission, addresses, counters } = build({ ALLOWED_ORIGINS: 'https://app.example' });
  const refused = refusal(admission.admitHandshake(request({ origin: 'https://evil.example' })));
  assert.equal(refused.status, 403);
  assert.doesNotMatch(JSON.stringify(refused), /evil/);
  assert.equal(counters.refused.origin, 1);
  assert.equal(addresses.calls, 0);
});

test('origins are compared exactly; `null` is refused; a client without an origin is not a browser', () => {
  const allowed = createOriginCheck(['https://app.example', 'http://localhost:8080']);
  for (const origin of ['https://app.example', 'http://localhost:8080', undefined])
    assert.equal(allowed(origin), true, origin);
  for (const origin of [
    'null',
    '',
    'http://app.example',
    'https://app.example:8443',
    'https://app.example.evil',
    'https://evilapp.example',
    'https://app.example/',
    'https://evil.example#https://app.example',
    'https://app.example, https://evil.example',
    'https://app.example@evil.example',
    'HTTPS://APP.EXAMPLE',
    '__proto__',
  ]) {
    assert.equal(allowed(origin), false, origin);
  }
});

test('a star stands for exactly one label, with its scheme and its port', () => {
  const allowed = createOriginCheck([
    ...['https://*.example.com', 'http://*.localhost:8080', 'https://one.example'],
  ]);
  for (const origin of [
    'https://a.example.com',
    'https://pr-17--chat.example.com',
    'https://xn--bcher-kva.example.com',
    'https://a_b.example.com',
    'http://acme.localhost:8080',
    'https://one.example',
    undefined,
  ])
    assert.equal(allowed(origin), true, origin);
  for (const origin of [
    'https://example.com',
    'https://.example.com',
    'https://a.b.example.com',
    'https://a.example.com.evil',
    'https://aexample.com',
    'https://a.example.co',
    'http://a.example.com',
    'https://a.example.com:8443',
    'https://a.example.com:443',
    'https://a.example.com.',
    'https://a.example.com/',
    'https://evil.test/.example.com',
    'https://evil.test#.example.com',
    'https://u@a.example.com',
    'https://u:p@a.example.com',
    'https://a.example.com, https://evil.test',
    'https://evil.test, https://a.example.com',
    'https://*.example.com',
    'https://-.example.com',
    'https://A.example.com',
    'https://%61.example.com',
    'https://bücher.example.com',
    `https://${'a'.repeat(64)}.example.com`,
    'http://localhost:8080',
    'http://acme.localhost',
    'https://a.one.example',
    'a.example.com',
    '//a.example.com',
    'null',
    '',
  ])
    assert.equal(allowed(origin), false, origin);
});

test('without an allow-list every origin is admitted', () => {
  const allowed = createOriginCheck([]);
  for (const origin of ['https://any.example', 'null', undefined])
    assert.equal(allowed(origin), true);
});

test('a forged X-Forwarded-For does not evade the cap', async () => {
  const { admission } = build({ FANFARE_MAX_CONNECTIONS_PER_IP: '100' });
  const decisions = await Promise.all(
    Array.from({ length: 300 }, (_, i) =>
      admission.admitHandshake(request({ 'x-forwarded-for': `6.6.${i >> 8}.${i & 255}` })),
    ),
  );
  assert.equal(decisions.filter((decision) => decision instanceof AdmissionLease).length, 100);
});

test('behind a trusted proxy each client has its own cap, and forging does not help it', async () => {
  const { admission } = build({
    FANFARE_MAX_CONNECTIONS_PER_IP: '10',
    TRUST_PROXY: '127.0.0.1/32',
  });
  for (const client of ['10.0.0.1', '10.0.0.2']) {
    const forwarded = (/** @type {number} */ i) =>
      request({ 'x-forwarded-for': `6.6.6.${i}, ${client}` }, '::ffff:127.0.0.1');
    const decisions = await Promise.all(
      Array.from({ length: 30 }, (_, i) => admission.admitHandshake(forwarded(i))),
    );
    assert.equal(decisions.filter((decision) => decision instanceof AdmissionLease).length, 10);
  }
});

test('if the descriptor limit is low, the reserve is a share of it', () => {
  const { config } = loadConfig({});
  assert.ok(config);
  const health = {
    lagMs: () => 0,
    heapPercent: () => 0,
    openDescriptors: () => 0,
    descriptorLimit: 64,
  };
  const parts = {
    config,
    addresses: new Counter(),
    health,
    counters: createCounters(),
    now: () => 0,
  };
  assert.equal(new Admission(parts).maxDescriptors, 48);
  assert.equal(
    new Admission({ ...parts, health: { ...health, descriptorLimit: Number.POSITIVE_INFINITY } })
      .maxDescriptors,
    Number.POSITIVE_INFINITY,
  );
});

const RATE = { FANFARE_HANDSHAKES_PER_MINUTE_PER_IP: '60', FANFARE_HANDSHAKES_BURST_PER_IP: '3' };

test('an address that connects too often gets 429 and a time to wait, others are admitted', () => {
  const { admission, counters, clock } = build(RATE);
  for (let i = 0; i < 3; i++) assert.equal(admission.admitPeer('192.0.2.1'), null);
  const refused = refusal(admission.admitPeer('192.0.2.1'));
  assert.equal(refused.status, 429);
  assert.equal(refused.reason, 'handshakes_per_ip');
  assert.equal(refused.headers['Retry-After'], '2');
  assert.equal(counters.refused.handshakes_per_ip, 1);
  assert.equal(admission.admitPeer('192.0.2.2'), null);
  clock.nowMs = 1000;
  assert.equal(admission.admitPeer('192.0.2.1'), null);
  assert.notEqual(admission.admitPeer('192.0.2.1'), null);
});

test('an observed rate of handshakes counts and admits; a rate that is off counts nothing', () => {
  for (const [mode, count] of /** @type {const} */ ([
    ['observe', 2],
    ['off', 0],
  ])) {
    const { admission, counters } = build({
      ...RATE,
      FANFARE_HANDSHAKES_PER_MINUTE_PER_IP_MODE: mode,
    });
    for (let i = 0; i < 5; i++) assert.equal(admission.admitPeer('192.0.2.1'), null);
    assert.equal(counters.observed.handshakes_per_ip, count);
    assert.equal(counters.refused.handshakes_per_ip, 0);
  }
});

test('behind a trusted proxy the rate of handshakes applies to the client, not to the proxy', async () => {
  const { admission, counters } = build({ ...RATE, TRUST_PROXY: '127.0.0.1' });
  const from = (/** @type {string} */ client) =>
    admission.admitHandshake(request({ 'x-forwarded-for': client }, '::ffff:127.0.0.1'));
  for (let i = 0; i < 10; i++)
    assert.equal(admission.admitPeer(admission.peerOf(request({}, '127.0.0.1').socket)), null);
  for (let i = 0; i < 3; i++) assert.ok((await from('192.0.2.1')) instanceof AdmissionLease);
  assert.equal(refusal(await from('192.0.2.1')).reason, 'handshakes_per_ip');
  assert.ok((await from('192.0.2.2')) instanceof AdmissionLease);
  assert.equal(counters.refused.handshakes_per_ip, 1);
});

test('an address is forgotten when its bucket is full again', () => {
  const rate = new HandshakeRate(60_000, 1, createCounters());
  for (let i = 0; i < 100; i++) rate.takeHandshake(String(i), 0);
  assert.equal(rate.addresses, 100);
  for (let i = 100; i < 300; i++) rate.takeHandshake(String(i), i);
  assert.ok(rate.addresses < 110, `${rate.addresses}`);
});
