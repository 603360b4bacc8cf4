// Writes a `response_format` of OpenAI as a grammar of llama.cpp (GBNF). node-llama-cpp does so too, but lets integers have exponents
// and objects line breaks, and takes what it does not know for null.

// Above it a text has no limit: llama.cpp refuses grammars that repeat too much.
const TEXT_LENGTH_MAX = 1024;
const CHARACTER = String.raw`[^"\\\x00-\x1F\x7F] | "\\" ["\\/bfnrt]`;
const OBJECT = '"{" (text ":" value ("," text ":" value)*)? "}"';
const VALUE_RULES = String.raw`
value ::= ${OBJECT} | "[" (value ("," value)*)? "]" | text | number | "true" | "false" | "null"
text ::= "\"" (${CHARACTER})* "\""
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,6})?`;

/** A form without a grammar. */
export class SchemaError extends Error {}

const literal = (value) => JSON.stringify(JSON.stringify(value));

function numberRule({ minimum, maximum, multipleOf }, isInteger) {
  const digits = Number.isFinite(maximum) ? Math.max(1, String(Math.trunc(Math.abs(maximum))).length) : 16;
  const decimals = isInteger ? 0 : Math.max(0, Math.round(-Math.log10(multipleOf ?? 1e-6)));
  const whole = digits === 1 ? "[0-9]" : `("0" | [1-9] [0-9]{0,${digits - 1}})`;
  return `${minimum >= 0 ? "" : '"-"? '}${whole}${decimals ? ` ("." [0-9]{1,${decimals}})?` : ""}`;
}

/** Rules for a JSON Schema: compact, every member there is in the order of `properties`. Other keywords count for nothing. */
class Rules {
  byText = new Map();

  /** The name of a rule: what is repeated stands in a rule of its own. */
  nameOf(text) {
    if (!this.byText.has(text)) this.byText.set(text, `rule-${this.byText.size}`);
    return this.byText.get(text);
  }

  array({ items = true, minItems = 0, maxItems }, path) {
    if (maxItems === 0) return '"[]"';
    const item = this.nameOf(this.of(items, `${path}/items`));
    const list = `${item} ("," ${item}){${Math.max(0, minItems - 1)},${maxItems === undefined ? "" : maxItems - 1}}`;
    return minItems > 0 ? `"[" ${list} "]"` : `"[" (${list})? "]"`;
  }

  string({ minLength = 0, maxLength = Infinity }) {
    const character = this.nameOf(CHARACTER);
    return this.nameOf(String.raw`"\"" ${character}{${minLength},${maxLength > TEXT_LENGTH_MAX ? "" : maxLength}} "\""`);
  }

  anyOf(alternatives, path) {
    if (!alternatives.length) throw new SchemaError(`nothing fits the schema at ${path}`);
    return `(${alternatives.join(" | ")})`;
  }

  of(schema, path = "#") {
    if (schema === true) return "value";
    if (schema === null || typeof schema !== "object" || "$ref" in schema || "allOf" in schema) {
      throw new SchemaError(`no grammar for the schema at ${path}`);
    }
    const { type, properties } = schema;
    const alternatives = schema.anyOf ?? schema.oneOf ?? (Array.isArray(type) ? type.map((type) => ({ ...schema, type })) : null);
    if (alternatives) return this.anyOf(alternatives.map((one, index) => this.of(one, `${path}/${index}`)), path);
    if ("const" in schema) return literal(schema.const);
    if (schema.enum) return this.anyOf(schema.enum.map(literal), path);
    if (type === "object" && !properties) return OBJECT;
    if (type === "object") {
      const members = Object.entries(properties).map(([name, member]) => `${literal(name)} ":" ${this.of(member, `${path}/${name}`)}`);
      return `"{" ${members.join(' "," ')} "}"`;
    }
    if (type === "array") return this.array(schema, path);
    if (type === "string") return this.string(schema);
    if (type === "integer" || type === "number") return numberRule(schema, type === "integer");
    if (type === "boolean") return '("true" | "false")';
    if (type === "null") return '"null"';
    throw new SchemaError(`no grammar for type ${JSON.stringify(type)} at ${path}`);
  }
}

/** The grammar of a `response_format`, none for plain text; a SchemaError where none can be written. */
export function grammarOf(form = { type: "text" }) {
  if (form?.type === "text") return undefined;
  if (form?.type === "json_object") return `root ::= ${OBJECT}${VALUE_RULES}`;
  if (form?.type !== "json_schema") throw new SchemaError("its type is none of text, json_object, json_schema");
  const rules = new Rules();
  const root = rules.of(form.json_schema?.schema);
  const named = [...rules.byText].map(([text, name]) => `${name} ::= ${text}`);
  return [`root ::= ${root}`, ...named].join("\n") + VALUE_RULES;
}
