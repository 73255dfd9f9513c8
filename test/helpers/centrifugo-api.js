// centrifugo-api.js: requests to Centrifugo's server API.

export const KEY = 'a-key-of-the-server-api-0123456789';

/**
 * @param {number} port @param {string} [path]
 * @returns {(method: string, request: object) => Promise<any>} the body of the answer
 */
export function centrifugoApiOf(port, path = '/centrifugo/api') {
  return async (method, request) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}/${method}`, {
      method: 'POST',
      headers: { 'X-API-Key': KEY, 'Content-Type': 'application/json' },
      body: JSON.stringify(request),
    });
    return response.json();
  };
}
