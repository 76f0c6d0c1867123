// SPDX-License-Identifier: MIT
// The style sheet. Blue means within range, orange means lost; both are told by shape and words
// as well. Every colour is a variable, so that the dark scheme is one block.
#include "analysis/report/html_parts.h"

namespace halfscope::html {

const std::string_view kStyle = R"css(
:root{color-scheme:light dark;--bg:#fff;--card:#f6f7f9;--line:#dcdfe4;--ink:#1b1f24;--soft:#5a6370;
--ok:#1664ad;--ok-soft:#dceafa;--bad:#b34700;--bad-soft:#fdeadb;--bar:#3d86c6;--lost:#dd6b10;
--zone-lost:#fbd9bd;--zone-sub:#fdf0e4;--l0:#4a5361;--l1:#1f77b4;--l2:#d95f02;--l3:#7a5fa8;}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--card:#1d2127;--line:#343b45;--ink:#e7eaee;
--soft:#9aa4b1;--ok:#7db8f0;--ok-soft:#17304a;--bad:#ff9f5a;--bad-soft:#45270f;--bar:#5aa2e0;
--lost:#f58a33;--zone-lost:#5a3415;--zone-sub:#33251a;--l0:#b4bcc8;--l1:#63b0ee;--l2:#fd9a4e;
--l3:#b59be0;}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--ink);line-height:1.5;
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif}
main{max-width:1080px;margin:0 auto;padding:28px 24px 64px}
h1{font-size:1.75rem;line-height:1.28;font-weight:620;margin:.35em 0 .4em;max-width:34em;
text-wrap:balance;overflow-wrap:anywhere}
h2{font-size:1.2rem;font-weight:620;margin:2.6em 0 .7em;padding-top:.9em;
border-top:1px solid var(--line)}
h3{font-size:1rem;font-weight:620;margin:1.6em 0 .5em}
p{margin:.5em 0}.soft,figcaption,.how{color:var(--soft)}.how{font-size:.87rem;max-width:52em}
a{color:var(--ok);text-decoration:none}a:hover{text-decoration:underline}
code,pre{font:.88em/1.5 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
sup{font-size:.72em;line-height:0}
code{overflow-wrap:anywhere}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px;
overflow-x:auto;margin:.6em 0}
.brand{color:var(--soft);font-size:.9rem;letter-spacing:.01em}
.brand b{color:var(--ink);font-weight:620}
.tag{display:inline-flex;align-items:center;gap:.45em;border-radius:99px;padding:.1em .75em;
font-size:.85rem;font-weight:600;white-space:nowrap;background:var(--ok-soft);color:var(--ok)}
.tag.warning,.tag.attention,.tag.error,.tag.broken{background:var(--bad-soft);color:var(--bad)}
.tag svg{width:.8em;height:.8em;fill:currentColor}
.state{font-size:1rem;margin-top:1.1em}
.do{border:1px solid var(--line);border-left:4px solid var(--ok);border-radius:8px;
background:var(--card);padding:14px 18px;margin:1.2em 0}
.do .advice{font-size:1.12rem;font-weight:560;margin:.1em 0 .3em;overflow-wrap:anywhere}
dl.run{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:12px 20px;
margin:1.4em 0 0}
dl.run dt{color:var(--soft);font-size:.8rem}
dl.run dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto;margin:.6em 0}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th{font-weight:560;color:var(--soft);font-size:.8rem;text-align:left;white-space:nowrap}
th,td{padding:6px 12px 6px 0;border-bottom:1px solid var(--line);vertical-align:middle}
td.n,th.n{text-align:right;white-space:nowrap}
th:last-child,td:last-child{padding-right:0}
td.bad{color:var(--bad);font-weight:600}td.bad::before{content:"\25B2\2009";font-size:.7em}
td.zero{color:var(--soft)}
td.name{overflow-wrap:anywhere;min-width:11em}
tr:target td,details:target{background:var(--ok-soft)}
.plot{display:grid;grid-template-columns:3.6em 1fr;margin:.5em 0 .2em}
.plot .y{position:relative;font-size:.78rem;color:var(--soft);font-variant-numeric:tabular-nums}
.plot .y span{position:absolute;right:.7em;transform:translateY(-50%);white-space:nowrap}
.plot svg{width:100%;height:190px;display:block;border-bottom:1px solid var(--line)}
.plot.low svg{height:130px}
.plot .x{grid-column:2;display:flex;justify-content:space-between;font-size:.78rem;
color:var(--soft);padding-top:3px;font-variant-numeric:tabular-nums}
.plot path,.plot line{fill:none;vector-effect:non-scaling-stroke}
.grid{stroke:var(--line);stroke-width:1}
.c0{stroke:var(--l0)}.c1{stroke:var(--l1)}.c2{stroke:var(--l2)}.c3{stroke:var(--l3)}
.curve{stroke-width:1.7;stroke-linejoin:round}
.d1{stroke-dasharray:none}.d0{stroke-dasharray:5 3}.d2{stroke-dasharray:8 3 2 3}
.d3{stroke-dasharray:2 3}
.plot .gone,.legend .gone{fill:none;stroke:var(--lost);stroke-width:7}
.legend{display:flex;flex-wrap:wrap;gap:4px 20px;font-size:.85rem;margin:.3em 0}
.legend span{display:inline-flex;align-items:center;gap:.5em}
.legend svg{flex:none}
.legend svg path{fill:none}
figure{margin:1.3em 0}figcaption{font-size:.87rem;margin-top:.2em}
figure h3{margin:0 0 .2em}
.finding{border:1px solid var(--line);border-radius:8px;padding:12px 16px;margin:.8em 0}
.finding.error,.finding.warning{border-left:4px solid var(--lost)}
.finding header{display:flex;flex-wrap:wrap;gap:4px 12px;align-items:center;font-size:.87rem}
.finding .todo{font-weight:560}
.finding p{overflow-wrap:anywhere}
summary{cursor:pointer;color:var(--soft);font-size:.87rem;padding:2px 0}
summary:hover{color:var(--ink)}
.evidence{width:auto;margin:.4em 0}.evidence td{padding:2px 18px 2px 0;overflow-wrap:anywhere}
svg.h{display:block;width:132px;height:26px}
svg.h.big{width:100%;height:64px;min-width:180px}
.g{fill:var(--bar)}.w{fill:var(--lost)}.zl{fill:var(--zone-lost)}.zs{fill:var(--zone-sub)}
.zn{fill:var(--card)}.edge{stroke:var(--soft);stroke-width:1;stroke-opacity:.6;fill:none;
vector-effect:non-scaling-stroke}
.tensor{display:grid;grid-template-columns:minmax(180px,1fr) 2fr;gap:4px 20px;padding:10px 0;
border-bottom:1px solid var(--line);align-items:center}
.tensor:last-child{border-bottom:0}
.tensor .nums{font-size:.85rem;color:var(--soft);font-variant-numeric:tabular-nums}
.tensor .nums b{font-weight:560;color:var(--ink)}
.tensor .nums .bad{color:var(--bad);font-weight:600}
.axis{display:flex;justify-content:space-between;font-size:.72rem;color:var(--soft);
font-variant-numeric:tabular-nums}
details.layer{border:1px solid var(--line);border-radius:8px;padding:6px 14px;margin:.6em 0}
details.layer>summary{font-size:.95rem;color:var(--ink)}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:.85rem;color:var(--soft);margin:.4em 0}
.key span{display:inline-flex;align-items:center;gap:.45em}
.key svg{width:16px;height:12px;display:block}
dl.defs dt{font-weight:560;margin-top:.7em}dl.defs dd{margin:.1em 0 0;color:var(--soft);
max-width:52em}
@media (max-width:640px){main{padding:18px 14px 48px}h1{font-size:1.3rem}
.tensor{grid-template-columns:1fr}.plot{grid-template-columns:2.9em 1fr}
.plot svg{height:150px}dl.run{grid-template-columns:1fr 1fr}}
@media print{:root{color-scheme:light}body{font-size:10.5pt}main{max-width:none;padding:0}
.finding,figure,tr,.tensor,.do{break-inside:avoid}h2,h3{break-after:avoid}.scroll{overflow:visible}
details::details-content{content-visibility:visible;height:auto}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
)css";

}  // namespace halfscope::html
