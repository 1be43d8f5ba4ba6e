"use strict";
// Keeps an open page up to date. Everything on a page can be read without it.

(() => {
  const EVERY_MS = 2000;        // while somebody looks
  const HIDDEN_MS = 30000;      // while the tab is hidden
  const LONGEST_MS = 60000;     // between two tries where nothing answers
  const TELL_MS = 20000;        // a screen reader is told no oftener

  const main = document.getElementById("main");
  const pulse = document.getElementById("pulse");
  const told = document.getElementById("told");
  document.documentElement.classList.add("script");

  let live = main.dataset.live;
  let tag = "";
  let failures = 0;
  let timer = 0;
  let asking = null;
  let toldAt = Date.now();
  let charts = {};
  const sources = new Map();    // part of the page -> its HTML as it came

  const parts = (root) => [...root.querySelectorAll("[data-part]")];
  parts(main).forEach((part) => sources.set(part.id, part.outerHTML));

  // -- the pulse ---------------------------------------------------------------------------------------------

  function beat(state, words) {
    pulse.dataset.state = state;
    pulse.textContent = words;
    main.classList.toggle("stale", state !== "live");
  }

  function clock() {
    return new Date().toISOString().slice(11, 19);
  }

  function schedule(ms) {
    clearTimeout(timer);
    timer = setTimeout(ask, ms);
  }

  function pause() {
    if (failures) return Math.min(LONGEST_MS, EVERY_MS * 2 ** failures);
    return document.hidden ? HIDDEN_MS : EVERY_MS;
  }

  async function ask() {
    if (asking) asking.abort();
    const mine = asking = new AbortController();
    const limit = setTimeout(() => mine.abort(), LONGEST_MS);
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(live, { headers, cache: "no-store", redirect: "error", signal: mine.signal });
      if (mine !== asking) return;
      if (answer.status === 401) {
        beat("out", "You are signed out. Load the page again to sign in.");
        return;  // and no more questions
      }
      if (answer.status === 200) {
        const page = await answer.json();
        if (mine !== asking) return;
        tag = answer.headers.get("ETag") || "";
        show(page);
      } else if (answer.status !== 304) {
        throw new Error(String(answer.status));
      }
      failures = 0;
      beat("live", `Live: checked at ${clock()} UTC.`);
    } catch (error) {
      if (mine !== asking) return;
      failures = Math.min(failures + 1, 6);
      const why = /^\d+$/.test(error.message) ? `it answers ${error.message}` : "it does not answer";
      beat("late", `The server cannot say what is new (${why}). These numbers are from before; trying again.`);
    } finally {
      clearTimeout(limit);
    }
    schedule(pause());
  }

  // -- new content -------------------------------------------------------------------------------------------

  function show(page) {
    document.title = document.title.replace(/^[^·]*/, page.title + " ");
    charts = page.charts;
    const fresh = new DOMParser().parseFromString(page.main, "text/html");
    const ids = parts(fresh).map((part) => part.id).join(" ");
    if (ids === parts(main).map((part) => part.id).join(" ")) {
      for (const part of parts(fresh)) replacePart(document.getElementById(part.id), part);
    } else {
      const focus = focusName(document.activeElement);
      main.innerHTML = fresh.body.innerHTML;
      sources.clear();
      parts(fresh).forEach((part) => sources.set(part.id, part.outerHTML));
      refocus(main, focus);
    }
    ages();
    draw();
    tell(page.said);
  }

  function replacePart(old, part) {
    const source = part.outerHTML;
    if (sources.get(part.id) === source) return;
    const busy = document.activeElement;
    if (busy && busy.matches("select, input") && old.contains(busy)) return;  // somebody is choosing
    const selected = document.getSelection();
    if (selected && !selected.isCollapsed && old.contains(selected.anchorNode)) return;  // or copying
    sources.set(part.id, source);
    const focus = old.contains(busy) ? focusName(busy) : null;
    const numbers = [...old.querySelectorAll("[data-n]")].map((each) => each.dataset.n);
    keep(old, part);
    old.replaceWith(document.adoptNode(part));
    part.querySelectorAll("[data-n]").forEach((each, place) => {
      if (numbers[place] !== undefined && numbers[place] !== each.dataset.n) each.classList.add("changed");
    });
    scrolls.forEach(([id, left]) => { const found = document.getElementById(id); if (found) found.scrollLeft = left; });
    if (focus) refocus(part, focus);
  }

  let scrolls = [];

  // What a person did, or what is costly to draw again, survives.
  function keep(old, part) {
    scrolls = [...old.querySelectorAll(".scroll")].map((each) => [each.id, each.scrollLeft]);
    for (const details of old.querySelectorAll("details[open]")) {
      const same = part.querySelector(`#${CSS.escape(details.id)}`);
      if (same) same.open = true;
    }
    for (const chart of old.querySelectorAll("[data-chart]")) {
      const same = part.querySelector(`#${CSS.escape(chart.id)}`);
      if (same) same.replaceWith(chart);
    }
  }

  function focusName(element) {
    if (!element || element === document.body) return null;
    if (element.id) return `#${CSS.escape(element.id)}`;
    const href = element.getAttribute("href");
    if (href) return `a[href="${CSS.escape(href)}"]`;
    return element.matches("summary") && element.parentElement.id ? `#${CSS.escape(element.parentElement.id)} > summary` : null;
  }

  function refocus(root, name) {
    const found = name && (root.matches(name) ? root : root.querySelector(name));
    if (found) found.focus({ preventScroll: true });
  }

  function tell(words) {
    const now = Date.now();
    if (!words || words === told.textContent || now - toldAt < TELL_MS) return;
    toldAt = now;
    told.textContent = words;
  }

  // -- ages --------------------------------------------------------------------------------------------------

  function ages() {
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const seconds = Math.round((Date.now() - Date.parse(time.dateTime)) / 1000);
      if (!time.title) time.title = time.textContent;
      time.textContent = seconds < 10 ? "just now" : `${age(seconds)} ago`;
    }
  }

  function age(seconds) {
    const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
    const [size, unit] = units.find(([each]) => seconds >= each);
    return `${Math.floor(seconds / size)}\u202f${unit}`;
  }

  // -- choices -----------------------------------------------------------------------------------------------

  document.addEventListener("change", (event) => {
    const form = event.target.closest("form.controls");
    if (!form) return;
    const given = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) given.set(name, value);
    if (given.get("over") && given.get("dimensions")) given.delete(event.target.name === "over" ? "dimensions" : "over");
    go(form.getAttribute("action") + (given.size ? `?${given}` : ""));
  });

  document.addEventListener("click", (event) => {
    const link = event.target.closest("form.controls a, #nothing a");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });

  function go(address) {
    history.pushState(null, "", address);
    follow();
  }

  function follow() {
    live = "/live" + location.pathname + location.search;
    tag = "";
    const chosen = document.activeElement;
    const focus = focusName(chosen) || (chosen && chosen.name ? `[name="${chosen.name}"][value="${chosen.value}"]` : null);
    if (chosen && chosen.matches("select, input")) chosen.blur();  // its part of the page may change now
    ask().then(() => refocus(main, focus));
  }

  window.addEventListener("popstate", follow);

  // -- charts ------------------------------------------------------------------------------------------------

  function draw(again) {
    if (typeof DitherCharts !== "undefined") DitherCharts.draw(main, charts, again);
  }

  let resizing = 0;
  window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => draw(), 120); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-png]");
    if (button) DitherCharts.save(charts[button.dataset.png], button.dataset.file);
  });

  // ----------------------------------------------------------------------------------------------------------

  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); else schedule(HIDDEN_MS); });
  setInterval(ages, 10000);
  ages();
  ask();
})();
