// openapi.js: docs/openapi.yaml as a page of Markdown: its routes in one table, then each route with
// its parameters, body, answer and errors, and the objects that several of them use.

/** @typedef {Record<string, any>} Node a part of the document */

const METHODS = ['get', 'post', 'put', 'delete'];

/**
 * @param {Node} api the parsed document
 * @returns {string}
 */
export function pageOfApi(api) {
  const page = new ApiPage(api);
  const routes = Object.entries(api.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => method in item).map((method) => ({
      path,
      method: method.toUpperCase(),
      ...item[method],
      parameters: [...(item.parameters ?? []), ...(item[method].parameters ?? [])],
    })),
  );
  const sections = api.tags.map((/** @type {Node} */ { name }) => {
    const own = routes.filter(({ tags }) => tags.includes(name));
    return `## Routes: ${name}\n\n${own.map((one) => page.route(one)).join('\n')}`;
  });
  return `# Routes of the HTTP API

${api.info.summary} ${oneLine(api.info.description)}

The [HTTP API](http-api.md) guide explains keys, rights, idempotency and errors. This page is made
from [openapi.yaml](/openapi.yaml), which you can give to a code generator.

<!-- table: routes -->
${table(
  ['route', '', 'what it does'],
  routes.map(({ method, path, operationId, summary }) => [
    `[\`${path}\`](#${operationId.toLowerCase()})`,
    method,
    summary,
  ]),
)}
<!-- end -->

${sections.join('\n')}
## Objects

${page.objects()}`;
}

class ApiPage {
  #api;
  /** Schemas that a table has linked to, by name. @type {Set<string>} */
  #linked = new Set();

  /** @param {Node} api */
  constructor(api) {
    this.#api = api;
  }

  /** @param {Node} route */
  route({ method, path, operationId, summary, description, parameters, requestBody, responses }) {
    const { 200: answer, ...errors } = responses;
    return [
      `### ${operationId}\n`,
      `\`${method} ${path}\`\n`,
      `${summary} ${oneLine(description)}\n`,
      this.#parameters(parameters),
      requestBody === undefined ? '' : this.#body(requestBody, method, path),
      `**Answer 200.** ${answer.description}\n`,
      this.#fieldsOf(answer.content['application/json'].schema),
      this.#errors(errors),
    ]
      .filter((part) => part !== '')
      .join('\n');
  }

  /** The objects that the routes have linked to, and those that these link to. */
  objects() {
    const texts = [];
    // A set that grows while it is read is read to its end.
    for (const name of this.#linked) {
      const schema = this.#api.components.schemas[name];
      texts.push(`### ${name}\n\n${oneLine(schema.description)}\n\n${this.#fieldsOf(schema)}`);
    }
    return texts.join('\n');
  }

  /** @param {readonly Node[]} parameters */
  #parameters(parameters) {
    if (parameters.length === 0) return '';
    const rows = parameters.map((one) => {
      const { name, in: place, required, description, schema } = this.#resolved(one);
      return [`\`${name}\``, place, this.#typeOf(schema), about(required, description)];
    });
    return `${table(['parameter', 'in', 'type', 'meaning'], rows)}\n`;
  }

  /** @param {Node} body @param {string} method @param {string} path */
  #body({ content }, method, path) {
    const { schema, examples = {} } = content['application/json'];
    const [example] = Object.values(examples);
    const fields = `**Body**\n\n${this.#fieldsOf(schema)}`;
    if (example === undefined) return fields;
    const url = `http://localhost:3000${path.replace('{user}', 'ann').replace('{room}', 'chat.42')}`;
    return `${fields}
\`\`\`sh
curl -X ${method} ${url} \\
  -H "Authorization: Bearer $API_KEY" -H 'Content-Type: application/json' \\
  -d '${JSON.stringify(example.value)}'
\`\`\`
`;
  }

  /** @param {Record<string, Node>} errors by status */
  #errors(errors) {
    const rows = Object.entries(errors).map(([status, one]) => [
      status,
      this.#resolved(one).description.replace(/\b[A-Z]+_[A-Z_]+\b|\b[A-Z]{8,}\b/g, linked),
    ]);
    return `<details><summary>Errors</summary>\n\n${table(['status', 'error'], rows)}\n\n</details>\n`;
  }

  /** The fields of an object, or of each of its kinds. @param {Node} given @returns {string} */
  #fieldsOf(given) {
    const schema = this.#resolved(given);
    const kinds = schema.oneOf ?? schema.anyOf;
    if (kinds !== undefined)
      return kinds.map((/** @type {Node} */ one) => this.#fieldsOf(one)).join('\nor\n\n');
    const rows = this.#rowsOf(schema, '');
    if (rows.length === 0) return '`{}`\n';
    return `${table(['field', 'type', 'meaning'], rows)}\n`;
  }

  /** @param {Node} schema of an object @param {string} before the names @returns {string[][]} */
  #rowsOf({ properties = {}, required = [] }, before) {
    return Object.entries(properties).flatMap(([name, field]) => {
      const { description } = this.#resolved(field);
      const path = `${before}${name}`;
      const row = [`\`${path}\``, this.#typeOf(field), about(required.includes(name), description)];
      if (field.type === 'array' && field.items.properties)
        return [row, ...this.#rowsOf(field.items, `${path}[].`)];
      return [row];
    });
  }

  /** @param {Node} given @returns {string} in words, with a link to an object */
  #typeOf(given) {
    const name = given.$ref?.split('/').at(-1);
    const schema = this.#resolved(given);
    if (name !== undefined && (schema.properties || schema.oneOf)) {
      this.#linked.add(name);
      return `[${name}](#${name.toLowerCase()})`;
    }
    if (schema.enum)
      return schema.enum.length > 8 ? 'an error code' : schema.enum.map(code).join(', ');
    if ('const' in schema) return code(JSON.stringify(schema.const));
    if (schema.type === 'array') return `array of ${this.#typeOf(schema.items)}`;
    const type = [schema.type ?? 'any JSON'].flat().join(' or ');
    return [type, boundsOf(schema)].filter((part) => part !== '').join(', ');
  }

  /** @param {Node} given @returns {Node} */
  #resolved(given) {
    if (given.$ref === undefined) return given;
    return given.$ref
      .slice('#/'.length)
      .split('/')
      .reduce((/** @type {Node} */ node, /** @type {string} */ key) => node[key], this.#api);
  }
}

/** @param {Node} schema @returns {string} */
function boundsOf({ minimum, maximum, minLength, maxLength, pattern, format }) {
  if (pattern !== undefined) return code(pattern);
  if (format !== undefined) return format;
  if (maxLength !== undefined) return `${minLength ?? 0} to ${maxLength} characters`;
  if (maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER) return `${minimum} to ${maximum}`;
  return minimum > 0 ? `from ${minimum}` : '';
}

/** @param {boolean} [required] @param {string} [description] */
const about = (required, description) =>
  `${required ? 'required. ' : ''}${oneLine(description)}`.trim();

/** @param {string} [text] */
const oneLine = (text = '') => text.trim().replace(/\s*\n\s*/g, ' ');

/** @param {string} text */
const code = (text) => `\`${String(text).replaceAll('|', '\\|')}\``;

/** @param {string} name of an error of the API */
const linked = (name) => `[\`${name}\`](http-api.md#${name})`;

/** @param {readonly string[]} head @param {readonly (readonly string[])[]} rows */
function table(head, rows) {
  const line = (/** @type {readonly string[]} */ cells) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}
