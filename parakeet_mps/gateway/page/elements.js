// What stands in index.html.

export function byId(id) {
  return document.getElementById(id);
}

/** Returns what the service has written into the page. */
export function fact(name) {
  return document.querySelector(`meta[name="${name}"]`).content;
}
