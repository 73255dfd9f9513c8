// chart.js: the chart of ops/helm/, and helm to render it.

import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseAllDocuments } from 'yaml';

const root = fileURLToPath(new URL('../../', import.meta.url));
export const CHART = `${root}ops/helm/fanfare`;
/** Where `ops/helm/check.sh --install` puts helm. */
const env = {
  ...process.env,
  PATH: `${process.env.PATH}:${root}node_modules/.cache/helm-tools/bin`,
};
export const noHelm = spawnSync('helm', ['version'], { env }).error
  ? 'no helm here: ops/helm/check.sh --install builds it'
  : false;

/** @param {string[]} args */
export const helm = (...args) => spawnSync('helm', args, { env, encoding: 'utf8' });

/**
 * Renders the chart for a release named `fanfare`.
 * @param {string[]} args
 * @returns {{status: number|null, error: string, objects: any[]}} `error`: what helm printed
 */
export function render(...args) {
  const options = ['--namespace', 'fanfare', '--kube-version', '1.30.0', '--skip-tests'];
  const { status, stdout, stderr } = helm('template', 'fanfare', CHART, ...options, ...args);
  const objects = status === 0 ? parseAllDocuments(stdout).map((one) => one.toJS()) : [];
  return { status, error: stderr, objects: objects.filter(Boolean) };
}
