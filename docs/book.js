// The theme puts each copy button into a <nav>, all of one name: who hears the page would hear of a hundred places to go.
// What scrolls sideways must do so by keyboard too: blocks of code, and tables that are wider than their page.
const reach = () => {
  for (const nav of document.querySelectorAll("nav.md-code__nav:not([role])")) nav.setAttribute("role", "none");
  for (const code of document.querySelectorAll("pre > code:not([tabindex])")) code.tabIndex = 0;
  for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    if (wrap.scrollWidth > wrap.clientWidth) wrap.tabIndex = 0;
  }
};
new MutationObserver(reach).observe(document.documentElement, { childList: true, subtree: true, attributeFilter: ["tabindex"] });
addEventListener("load", reach);
addEventListener("resize", reach);
