// Diagrams in furo's colours, which follow light and dark by themselves; what is wider than the page scrolls.
"use strict";

mermaid.initialize({
  startOnLoad: true,
  theme: "base",
  themeVariables: { fontFamily: "var(--font-stack)", fontSize: "12px" },
  flowchart: { useMaxWidth: false, nodeSpacing: 16, rankSpacing: 28, padding: 6 },
  sequence: { useMaxWidth: false, actorMargin: 20, messageMargin: 16, height: 40, messageFontSize: 12, actorFontSize: 12 },
  themeCSS: `
    .node rect, .node polygon, .node path, .node circle, rect.actor {
      fill: var(--color-background-secondary) !important; stroke: var(--color-foreground-muted) !important;
    }
    .cluster rect { fill: none !important; stroke: var(--color-foreground-border) !important; }
    text, tspan, .nodeLabel, .cluster-label span, .edgeLabel, .edgeLabel p {
      color: var(--color-foreground-primary) !important; fill: var(--color-foreground-primary) !important; stroke: none !important;
    }
    .edgeLabel, .edgeLabel p, .labelBkg { background: var(--color-background-primary) !important; }
    .flowchart-link, .actor-line, .messageLine0, .messageLine1 { stroke: var(--color-foreground-secondary) !important; }
    .marker, marker path { fill: var(--color-foreground-secondary) !important; stroke: var(--color-foreground-secondary) !important; }
  `,
});
