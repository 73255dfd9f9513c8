// docker.test.js: checks the files of docker/ without a Docker engine: with their linters, against
// each other, and by running the command of the image.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { startServer } from '../harness/server.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const dockerfile = readFileSync(`${root}docker/Dockerfile`, 'utf8');
/** The text of each stage by its name. */
const stages = new Map(
  dockerfile
    .split(/^FROM /m)
    .slice(1)
    .map((text) => [String(/ AS (\w+)\n/.exec(text)?.[1]), text]),
);
const ignore = readFileSync(`${root}docker/Dockerfile.dockerignore`, 'utf8').trim().split('\n');
const tools = `${root}node_modules/.cache/docker-tools/bin`;
const env = { ...process.env, PATH: `${process.env.PATH}:${tools}` };

/**
 * @param {string} path from the root
 * @returns {boolean} whether the build gets to see it: the last line that fits decides
 */
function isInContext(path) {
  let isIn = true;
  for (const line of ignore) {
    const pattern = line.replace(/^!/, '');
    if (pattern === '*' || path === pattern || path.startsWith(`${pattern}/`))
      isIn = line.startsWith('!');
  }
  return isIn;
}

/** The files that a stage copies from the repository. @param {string} stage */
function copiedBy(stage) {
  return [...String(stages.get(stage)).matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(
    ([, names]) => names.split(' '),
  );
}

/**
 * A command in its JSON form, in the server's stage.
 * @param {'CMD'|'HEALTHCHECK'} instruction @returns {string[]}
 */
function commandOf(instruction) {
  const pattern = instruction === 'CMD' ? /^CMD (\[.+\])$/m : /^HEALTHCHECK .*\\\n +CMD (\[.+\])$/m;
  return JSON.parse(String(pattern.exec(String(stages.get('server')))?.[1]));
}

test('the Dockerfile, the compose files and the scripts pass their linters', () => {
  const { status, stdout, stderr } = spawnSync(`${root}docker/check.sh`, { encoding: 'utf8', env });
  assert.equal(status, 0, stdout + stderr);
});

test('each image has every file that its program imports', () => {
  for (const [stage, entry] of [
    ['server', 'src/main.js'],
    ['loadtest', 'loadtest/swarm.js'],
  ]) {
    const copied = copiedBy(stage);
    assert.ok(copied.length > 0);
    for (const name of copied)
      assert.ok(existsSync(root + name) && isInContext(name), `${stage}: ${name}`);
    const files = closure(entry);
    assert.ok(files.size > 3, `${files.size} files`);
    for (const file of files) {
      assert.ok(
        copied.some((name) => file === name || file.startsWith(`${name}/`)) && isInContext(file),
        `${stage}: ${file}`,
      );
    }
  }
});

test('`docker run -P` publishes the public port and not the operations port', () => {
  assert.deepEqual(
    [...String(stages.get('server')).matchAll(/^EXPOSE (.+)$/gm)].map(([, ports]) => ports),
    ['3000'],
  );
});

test('the command of the image serves clients, and its health check follows the state of the server', {
  timeout: 60_000,
}, async (t) => {
  const folder = temporaryFolder(t);
  for (const name of copiedBy('server'))
    cpSync(root + name, join(folder, name), { recursive: true });
  symlinkSync(`${root}node_modules`, join(folder, 'node_modules'));
  const [, settings] = /^ENV (.+)$/m.exec(String(stages.get('server'))) ?? [];
  const image = Object.fromEntries(settings.split(' ').map((pair) => pair.split('=')));
  assert.equal(image.METRICS_HOST, '0.0.0.0');
  const [command, ...args] = commandOf('CMD');
  assert.deepEqual([command, ...args], ['node', 'src/main.js']);
  const server = await startServer(t, { ...image, WORKERS: '1' }, { main: join(folder, args[0]) });
  const [node, ...probe] = commandOf('HEALTHCHECK');
  assert.equal(node, 'node');
  const check = () =>
    spawnSync(process.execPath, probe, {
      cwd: folder,
      env: { ...process.env, METRICS_PORT: String(server.metricsPort) },
      timeout: 10_000,
    }).status;
  assert.equal(check(), 0);
  server.kill('SIGTERM');
  assert.deepEqual(await server.exited, { code: 0, signal: null });
  assert.equal(check(), 1);
});

test('the cluster agrees with the files of ops/ that it mounts', (t) => {
  const config = compose('cluster.compose.yml');
  if (!config) return t.skip('no compose tool here: docker/check.sh --install');
  const { services, networks } = config;
  for (const { volumes = [] } of Object.values(services)) {
    for (const { source } of volumes) assert.ok(existsSync(source), source);
  }
  /** @param {string} path @param {RegExp} pattern */
  const named = (path, pattern) => [
    ...new Set([...readFileSync(root + path, 'utf8').matchAll(pattern)].map(([, name]) => name)),
  ];
  const hosts = named('ops/prometheus/prometheus.yml', /^(?!#).*?'([\w-]+):\d+'/gm);
  const both = [...hosts, ...named('ops/prometheus/prometheus.yml', /, '([\w-]+):\d+'/g)];
  assert.deepEqual(both.sort(), ['fanfare-1', 'fanfare-2', 'node-exporter', 'redis-exporter']);
  const backends = named('ops/haproxy/haproxy.cfg', /^ {2}server ([\w-]+) \1:3000$/gm);
  assert.deepEqual(backends, ['fanfare-1', 'fanfare-2']);
  const sources = named(
    'ops/grafana/provisioning/datasources/prometheus.yml',
    /url: http:\/\/([\w-]+):9090/g,
  );
  assert.deepEqual(sources, ['prometheus']);
  for (const name of [...both, ...backends, ...sources]) assert.ok(name in services, name);

  const { ipv4_address: haproxy } = services.haproxy.networks.inside;
  const { gateway } = networks.inside.ipam.config[0];
  for (const name of backends) {
    assert.equal(services[name].environment.TRUST_PROXY, `${haproxy}/32`);
    // inter 1s fall 2
    assert.ok(Number(services[name].environment.FANFARE_DRAIN_DELAY_MS) > 2000);
    assert.ok(services[name].read_only);
  }
  assert.ok(services['node-exporter'].command.includes(`--web.listen-address=${gateway}:9100`));
  assert.deepEqual(services.prometheus.extra_hosts, [`node-exporter=${gateway}`]);
});

test('isolated-clients.sh makes a network for each client and removes all of them, also if a client fails', (t) => {
  for (const failing of ['', 'fanfare-clients-2']) {
    const folder = temporaryFolder(t);
    // Replaces docker, and records its command lines.
    writeFileSync(
      join(folder, 'docker'),
      `#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in
  *'ps --quiet fanfare') echo server-id ;;
  "wait $FAILING") echo 1 ;;
  wait*) echo 0 ;;
esac
`,
    );
    chmodSync(join(folder, 'docker'), 0o755);
    const calls = join(folder, 'calls');
    const script = `${root}docker/isolated-clients.sh`;
    const args = [
      '--networks',
      '3',
      '--connections',
      '1234',
      '--results',
      join(folder, 'results'),
      '--',
      '--phases',
      'connect',
    ];
    const { status, stdout, stderr } = spawnSync(script, args, {
      encoding: 'utf8',
      env: {
        ...process.env,
        PATH: `${folder}:${process.env.PATH}`,
        CALLS: calls,
        FAILING: failing,
      },
    });
    assert.equal(status, failing === '' ? 0 : 1, stdout + stderr);
    const said = readFileSync(calls, 'utf8').trim().split('\n');
    for (const i of [1, 2, 3]) {
      const name = `fanfare-clients-${i}`;
      /** @param {string} call */
      const at = (call) => said.findIndex((line) => line.startsWith(call));
      const made = at(`network create --internal --subnet 172.30.${i}.0/24 ${name}`);
      const joined = at(`network connect --alias fanfare ${name} server-id`);
      const run = at(`run --detach --name ${name} --network ${name} `);
      const gone = at(`network rm ${name}`);
      assert.ok(made >= 0 && made < joined && joined < run && run < gone, said.join('\n'));
      assert.match(
        said[run],
        /fanfare-loadtest --target ws:\/\/fanfare:3000\/ws --connections 1234 .*--phases connect$/,
      );
      assert.ok(at(`rm --force ${name}`) > run && at(`rm --force ${name}`) < gone);
      assert.ok(at(`network disconnect --force ${name} server-id`) < gone);
    }
    assert.match(said[said.length - 1], /^compose -f .*clients\.compose\.yml down/);
  }
  for (const args of [['--networks', 'x'], ['--networks', '0'], ['--networks'], ['--nets', '3']]) {
    assert.equal(spawnSync(`${root}docker/isolated-clients.sh`, args).status, 64, args.join(' '));
  }
});

/**
 * @param {string} file
 * @returns {any} as the compose tool reads it; null if it is not installed
 */
function compose(file) {
  const args = ['-f', `${root}docker/${file}`, 'config', '--format', 'json'];
  for (const [command, ...first] of [['docker', 'compose'], ['docker-compose']]) {
    const { status, stdout } = spawnSync(command, [...first, ...args], { encoding: 'utf8', env });
    if (status === 0) return JSON.parse(stdout);
  }
  return null;
}

/**
 * Every file of the repository that one imports, directly or not.
 * @param {string} entry @param {Set<string>} [found]
 */
function closure(entry, found = new Set()) {
  if (found.has(entry)) return found;
  found.add(entry);
  const source = readFileSync(root + entry, 'utf8');
  const specifiers = [
    ...source.matchAll(/^(?:import|export)\b[^'"]*?from\s+'(\.[^']+)'/gm),
    ...source.matchAll(/\bawait import\('(\.[^']+)'\)/g),
    ...source.matchAll(/new URL\('(\.[^']+\.js)', import\.meta\.url\)/g),
  ].map(([, specifier]) => specifier);
  for (const specifier of specifiers) closure(posix.join(dirname(entry), specifier), found);
  return found;
}
