// Creates elements without HTML, so text from the document can never become markup.

export type Child = Node | string | null | undefined | false;

/** Attributes by name. Never `style` or `on…`: the content security policy forbids both. */
export type Attributes = Record<string, string | number | boolean | null>;

export function element<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  set(made, attributes);
  append(made, children);
  return made;
}

export function button(label: string, attributes: Attributes, pressed: () => void): HTMLButtonElement {
  const made = element("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", pressed);
  return made;
}

export function set(target: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) target.removeAttribute(name);
    else target.setAttribute(name, value === true ? "" : String(value));
  }
}

export function fill(target: Element, ...children: Child[]): void {
  target.replaceChildren();
  append(target, children);
}

/** Splits a text at its code, which is between backticks: the words and `code` elements. */
export function coded(text: string): Child[] {
  return text.split(/`([^`\n]+)`/).map((part, at) => (at % 2 === 0 ? part : element("code", {}, part)));
}

/** Sets the text only if it changed, so a screen reader does not repeat it. */
export function write(target: Element, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

/** Returns the element with this id, which index.html must contain. */
export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`index.html has no #${id}`);
  return found;
}

function append(target: Element, children: Child[]): void {
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) target.append(child);
  }
}
