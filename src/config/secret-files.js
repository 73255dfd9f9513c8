// secret-files.js: secrets that are read from files: JWT_SECRET_FILE gives the path of JWT_SECRET.
//
// A reload reads the files again. Workers get the texts in a message, so no secret is in their
// environment. No fault quotes a path, which may be a secret in the wrong variable.

import { SECRET_FILES } from './names.js';

/**
 * @param {Readonly<Record<string, string|undefined>>} env
 * @param {import('./texts.js').ReadText} read
 * @returns {{env: Readonly<Record<string, string|undefined>>, faults: string[]}} with the secrets of
 *   the files under their own names
 */
export function readSecretFiles(env, read) {
  /** @type {Record<string, string>} */
  const secrets = {};
  const faults = [];
  for (const [setting, secret] of SECRET_FILES) {
    const path = (env[setting] ?? '').trim();
    if (path === '') continue;
    if ((env[secret] ?? '').trim() !== '') {
      faults.push(`${setting}: ${secret} is set, too; set one of them`);
      continue;
    }
    try {
      secrets[secret] = read(path).trim();
      // An empty file is not absent: a reload in the middle of a write would open the server.
      if (secrets[secret] === '') faults.push(`${setting}: the file is empty`);
    } catch (error) {
      const { code } = /** @type {NodeJS.ErrnoException} */ (error);
      faults.push(`${setting}: the file cannot be read (${code})`);
    }
  }
  return { env: { ...env, ...secrets }, faults };
}
