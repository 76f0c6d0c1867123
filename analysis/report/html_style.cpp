// SPDX-License-Identifier: MIT
// The style sheet and the page's one script. Blue means within range, orange means lost; both are
// told by shape and words as well. Every colour is a variable, so that the dark scheme is one
// block; text reaches a contrast of 4.5 to 1 on every ground it stands on (WCAG 2.1, 1.4.3).
#include "analysis/report/html_parts.h"

namespace halfscope::html {

const std::string_view kStyle = R"css(
:root{color-scheme:light dark;--bg:#fff;--card:#f6f7f9;--line:#dde1e7;--ink:#171b20;--soft:#56606d;
--accent:#1560a8;--accent-soft:#e5effa;--good:#146139;--good-soft:#e2f3e9;--warn:#7a4b00;
--warn-soft:#fcefd5;--bad:#ac2118;--bad-soft:#fde9e6;--bar:#3d86c6;--lost:#d9570b;
--zone-lost:#fad8bd;--zone-sub:#fdf0e4;--sbg:#fbfcfd;--sub:#c39a1f;--l0:#4a5361;--l1:#1f77b4;--l2:#c65302;--l3:#b0308a}
@media (prefers-color-scheme:dark){:root{--bg:#111418;--card:#191d23;--line:#303843;--ink:#e7eaee;
--soft:#a1abb7;--accent:#80baf2;--accent-soft:#14304d;--good:#74d6a0;--good-soft:#10301f;
--warn:#f0bd66;--warn-soft:#372a10;--bad:#ff968a;--bad-soft:#43191a;--bar:#4f9ade;--lost:#f5823a;
--zone-lost:#523016;--zone-sub:#2e241b;--sbg:#0d1013;--sub:#e0b64f;--l0:#b4bcc8;--l1:#63b0ee;--l2:#fd9a4e;--l3:#ec8fd0}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 24px 72px}
h1,h2,h3,h4{font-weight:640;line-height:1.3;overflow-wrap:anywhere}
h1{font-size:1.8rem;line-height:1.25;margin:.3em 0 .35em;max-width:38em;text-wrap:balance}
h2{font-size:1.3rem;margin:0 0 .6em}
h3{font-size:1.02rem;margin:1.8em 0 .5em}h4{font-size:.95rem;margin:1.2em 0 .3em}
section{margin-top:2.6em;padding-top:1.5em;border-top:1px solid var(--line)}
p{margin:.5em 0}small{font-size:.82em;font-weight:400;color:var(--soft)}
.soft,figcaption,.how{color:var(--soft)}.how,figcaption{font-size:.87rem;max-width:62em}
.how{margin:.5em 0 .9em}.lead{font-size:1.05rem;max-width:56em}
a{color:var(--accent);text-decoration:none}a:hover{text-decoration:underline}
a:focus-visible,summary:focus-visible,button:focus-visible,.scroll:focus-visible{outline:2px solid
var(--accent);outline-offset:2px;border-radius:3px}
code,pre{font:.86em/1.55 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
sup{font-size:.72em;line-height:0}code{overflow-wrap:anywhere}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px;
overflow-x:auto;margin:.5em 0;position:relative;white-space:pre-wrap;overflow-wrap:anywhere}
.pair pre{max-height:38em;overflow-y:auto}
.sr{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
svg.defs{position:absolute}
.brand{color:var(--soft);font-size:.9rem;margin:0 0 1.5em}.brand b{color:var(--ink);font-weight:700}
.brand span{float:right}
.tag{display:inline-flex;align-items:center;gap:.45em;border-radius:99px;padding:.12em .75em;
font-size:.84rem;font-weight:620;white-space:nowrap;background:var(--accent-soft);
color:var(--accent)}
.tag.healthy,.tag.cured,.tag.high{background:var(--good-soft);color:var(--good)}
.tag.warning,.tag.attention,.tag.medium{background:var(--warn-soft);color:var(--warn)}
.tag.error,.tag.broken,.tag.low{background:var(--bad-soft);color:var(--bad)}
.tag svg{width:.8em;height:.8em;fill:currentColor;flex:none}
.state{margin:0}.state .tag{font-size:.95rem;padding:.2em .95em}
.more{font-size:1.06rem;max-width:56em;color:var(--soft);overflow-wrap:anywhere}
ul.cards{list-style:none;display:grid;grid-template-columns:repeat(auto-fit,minmax(220px,1fr));
gap:14px;padding:0;margin:1.6em 0 0}
ul.cards li{border:1px solid var(--line);border-radius:10px;padding:13px 16px;min-width:0;
border-top:4px solid var(--soft)}
ul.cards li.healthy{border-top-color:var(--good)}ul.cards li.attention{border-top-color:var(--warn)}
ul.cards li.broken{border-top-color:var(--bad)}
ul.cards b{display:block;font-weight:640;margin:.5em 0 .35em;overflow-wrap:anywhere}
ul.cards dl{display:flex;flex-wrap:wrap;gap:2px 22px;margin:0}
ul.cards dt{color:var(--soft);font-size:.8rem}
ul.cards dd{margin:0;font-variant-numeric:tabular-nums;font-weight:560}
nav{display:flex;flex-wrap:wrap;gap:4px 18px;margin:1.8em 0 0;font-size:.9rem}
dl.answer{display:grid;grid-template-columns:repeat(auto-fit,minmax(260px,1fr));gap:12px 36px;
margin:1.3em 0 0;padding:14px 20px;background:var(--card);border-radius:10px;
border-left:4px solid var(--accent)}
dl.answer dt{color:var(--soft);font-size:.84rem}dl.answer dd{margin:.15em 0 0;max-width:44em;
overflow-wrap:anywhere}dl.answer b{font-size:1.08rem;font-weight:640}
ol.actions{list-style:none;padding:0;margin:.8em 0;display:grid;gap:14px}
.action{border:1px solid var(--line);border-left:4px solid var(--accent);border-radius:10px;
background:var(--card);padding:14px 20px}
.action .advice{font-size:1.2rem;font-weight:640;margin:0 0 .5em;overflow-wrap:anywhere}
.action dl{display:grid;grid-template-columns:1fr 1fr;gap:12px 32px;margin:0}
.action dt{color:var(--soft);font-size:.8rem}.action dd{margin:.1em 0 0;overflow-wrap:anywhere}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:6px 24px;align-items:start}
details{margin:.5em 0}details.ready{min-width:0}
summary{cursor:pointer;color:var(--accent);font-size:.9rem;padding:3px 0}
summary:hover{text-decoration:underline}
dl.run{display:grid;grid-template-columns:repeat(auto-fill,minmax(165px,1fr));gap:14px 24px;
margin:0}
dl.run dt{color:var(--soft);font-size:.8rem}
dl.run dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto;margin:.7em 0}
table{border-collapse:collapse;width:100%;font-size:.89rem;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);font-size:.84rem;padding:0 0 6px}
caption.sr{position:absolute}
thead th,thead td{font-weight:600;color:var(--soft);font-size:.8rem;text-align:left;
white-space:nowrap;vertical-align:bottom;border-bottom:1px solid var(--line)}
thead tr:not(:last-child)>*{border-bottom:0;padding-bottom:0;color:var(--ink)}
th,td{padding:5px 12px 5px 0;border-bottom:1px solid var(--line);vertical-align:middle;
text-align:left}
tbody th{font-weight:600}tbody tr:hover>*{background:var(--card)}
td.n,th.n{text-align:right;white-space:nowrap}th:last-child,td:last-child{padding-right:0}
td.bad{color:var(--bad);font-weight:620}td.bad::before{content:"\25B2\2009";font-size:.7em}
th button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer}
th button::after{content:"\2195";opacity:0;margin-left:.2em}th button:hover::after,
th button:focus-visible::after{opacity:.7}th[aria-sort=ascending] button::after{
content:"\2191";opacity:1}th[aria-sort=descending] button::after{content:"\2193";opacity:1}
pre button{float:right;position:sticky;top:0;margin:-4px -6px 4px 12px;font:600 .8rem/1 system-ui,sans-serif;
color:var(--accent);
background:var(--bg);border:1px solid var(--line);border-radius:6px;padding:6px 10px;cursor:pointer}
table.layers{white-space:nowrap;font-size:.84rem}.layers th,.layers td{padding-right:9px}
.layers th:nth-child(3)~th.n button{margin-right:-.9em}
table.layers th[scope=row]{min-width:13em;max-width:17em;white-space:normal;overflow-wrap:anywhere}
.layers td.n{white-space:normal}
.layers tbody th,.errors tbody th,.lanes tbody th{position:sticky;left:0;background:var(--bg);
z-index:1;
box-shadow:1px 0 0 var(--line)}
.layers thead th[colspan]{text-align:left}.layers thead th[colspan].n{text-align:right}
.advised th{box-shadow:inset 3px 0 0 var(--accent)!important;padding-left:9px}
.errors td{white-space:nowrap}
.do-it{font-weight:640;color:var(--accent)}.do-it::before{content:"\25B6\2009";font-size:.72em}
tr:target>*,details:target{background:var(--accent-soft)!important}
table.across{table-layout:fixed}table.across tbody th{font-weight:400;color:var(--soft)}
table.across th.n,table.across td.n{white-space:normal;overflow-wrap:anywhere}
.lane{display:inline-flex;align-items:center;gap:.6em;color:var(--ink)}
.across .lane{flex-direction:column;align-items:flex-end;gap:.2em}.lane svg{flex:none}
.plot{display:grid;grid-template-columns:3.6em 1fr;margin:.5em 0 .2em}
.plot .y{position:relative;font-size:.78rem;color:var(--soft);font-variant-numeric:tabular-nums}
.plot .y span{position:absolute;right:.7em;transform:translateY(-50%);white-space:nowrap}
.plot svg{width:100%;height:200px;display:block;border-bottom:1px solid var(--line);
overflow:visible}
.plot.low svg{height:120px}.plot.dense svg{height:240px}
.plot .x{grid-column:2;display:flex;justify-content:space-between;font-size:.78rem;
color:var(--soft);padding-top:3px;font-variant-numeric:tabular-nums}
.plot path,.plot line{fill:none;vector-effect:non-scaling-stroke}
.plot .dlo{stroke:var(--accent);stroke-width:6;stroke-linecap:round}
.plot .dgone{stroke:var(--bad);stroke-width:8;stroke-linecap:square}
.plot .din{stroke:var(--soft);stroke-width:4;stroke-linecap:square;stroke-opacity:.55}
.grid{stroke:var(--line);stroke-width:1}
.c0{stroke:var(--l0)}.c1{stroke:var(--l1)}.c2{stroke:var(--l2)}.c3{stroke:var(--l3)}
.curve{stroke-width:1.8;stroke-linejoin:round;fill:none}
.strong .curve{stroke-width:3.6;stroke-opacity:.85}
.d1{stroke-dasharray:none}.d0{stroke-dasharray:5 3}.d2{stroke-dasharray:8 3 2 3}
.d3{stroke-dasharray:2 3}
.plot .gone,.legend .gone{fill:none;stroke:var(--lost);stroke-width:7}
.legend{display:flex;flex-wrap:wrap;gap:4px 20px;font-size:.85rem;margin:.4em 0}
.legend span{display:inline-flex;align-items:center;gap:.5em}
.legend svg{flex:none}
figure{margin:1.3em 0 2em}figcaption{margin-top:.2em}
figure h3{margin:0 0 .2em}
section.spectrum{border-top:0;margin-top:1.4em;padding-top:0}
.hero-charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:0 26px;
align-items:start}
@media screen and (min-width:1500px){.hero-charts{width:1400px;margin-left:50%;
transform:translateX(-50%)}}
.hero-charts figure{margin:.4em 0 .8em;min-width:0}.hero-charts figcaption{display:none}
.hero-charts h3 small.bad{color:var(--bad);font-weight:620}
.hero-charts .plot svg{height:260px}
.sp{display:grid;grid-template-columns:var(--names) minmax(0,1fr) 50px}
.sp svg{width:100%;display:block;background:var(--sbg)}
.sp path{vector-effect:non-scaling-stroke;stroke-width:1.2;stroke-linejoin:round}
.names,.lost{position:relative;font-size:.72rem;color:var(--soft);line-height:1}
.names span,.lost span{position:absolute;transform:translateY(-80%);white-space:nowrap}
.names span{right:8px;max-width:calc(100% - 8px);overflow:hidden;text-overflow:ellipsis;padding-bottom:2px}
.names .guilty{color:var(--bad);font-weight:640}
.lost span{left:6px;color:var(--bad);font-variant-numeric:tabular-nums}
.lost.calm span{color:var(--soft)}
.sp .x{grid-column:2;position:relative;height:1.5em;font-size:.74rem;color:var(--soft)}
.sp .x span{position:absolute;transform:translateX(-50%);padding-top:2px}
.bands{position:relative;height:1.3em;margin:0 50px 0 var(--names);font-size:.7rem;
line-height:1.3}
.bands span{position:absolute;overflow:hidden;white-space:nowrap;text-align:center}
.bands b,.bands i{display:inline-block;overflow:hidden;font:inherit;vertical-align:top;
max-width:calc((100% - var(--n)*.6em)*999)}
.bands i{max-width:min((100% - var(--b)*.55em)*999,(var(--n)*.6em - 100%)*999)}
.tsl{color:var(--bad)}.tss{color:var(--warn)}.tsn{color:var(--accent)}
.zsn{fill:var(--bar);fill-opacity:.17}.zss{fill:var(--sub);fill-opacity:.17}
.sn{fill:var(--card);fill:color-mix(in srgb,var(--bar) 30%,var(--sbg));stroke:var(--bar)}
.ss{fill:var(--card);fill:color-mix(in srgb,var(--sub) 32%,var(--sbg));stroke:var(--sub)}
.sl{fill:var(--zone-lost);fill:color-mix(in srgb,var(--lost) 62%,var(--sbg));stroke:var(--lost)}
.fits{max-width:62em}table.formats{width:auto}.formats td{overflow-wrap:break-word}
.formats th[scope=colgroup]{padding-left:24px}.formats td:nth-child(3){padding-left:24px}
ul.ends{list-style:none;margin:0;padding:0;font-size:.87rem;max-width:22em}
.ends li{display:flex;justify-content:space-between;gap:1em;border-bottom:1px solid var(--line)}
.ends span{font-variant-numeric:tabular-nums;font-weight:560}
.sref{fill:none;stroke:var(--ink);stroke-opacity:.42}
.sp g:hover path{stroke-width:2.2}
ol.chain{list-style:none;display:flex;flex-wrap:wrap;gap:8px 26px;padding:0;margin:.6em 0}
.chain li{border:1px solid var(--line);border-radius:8px;padding:5px 11px;font-size:.88rem;
position:relative;overflow-wrap:anywhere}
.chain li small{display:block;line-height:1.3}
.chain li:not(:last-child)::after{content:"\2192";position:absolute;right:-21px;top:50%;
transform:translateY(-50%);
color:var(--soft)}
.chain .root{border:2px solid var(--lost);font-weight:620}
.because{font-size:1.2rem;font-weight:560;line-height:1.4;max-width:46em;margin:0 0 .7em;
overflow-wrap:anywhere}
dl.facts{display:grid;gap:10px 32px;margin:0;
grid-template-columns:repeat(auto-fit,minmax(230px,1fr))}
dl.facts dt{color:var(--soft);font-size:.8rem}dl.facts dd{margin:0;overflow-wrap:anywhere}
.chain .peak{color:var(--soft);font-weight:400}.fix{margin:1.4em 0 .6em}
.fix .advice{display:flex;flex-wrap:wrap;gap:6px 14px;align-items:center;margin:0}
.fix ul{margin:.2em 0 0;padding-left:1.3em}.fix p.soft{font-size:.87rem;margin:0}
.fix .advice+p.soft{margin-top:.7em}
.sure{margin:.9em 0 0}.ruled-out ul{padding-left:1.3em;margin:.4em 0}
table.tried{max-width:52em}
.finding{border:1px solid var(--line);border-radius:10px;padding:12px 18px;margin:.8em 0}
.finding.error{border-left:4px solid var(--bad)}.finding.warning{border-left:4px solid var(--warn)}
.finding header{display:flex;flex-wrap:wrap;gap:4px 12px;align-items:center;font-size:.89rem}
.finding h4{margin:0}.finding .todo{font-weight:600}.finding p{overflow-wrap:anywhere;
max-width:72em}
.evidence{width:auto;margin:.4em 0}.evidence th{font-weight:400;color:var(--soft)}
.evidence th,.evidence td{padding:2px 18px 2px 0;overflow-wrap:anywhere}
svg.h{display:block;width:100px;height:22px}
svg.h.big{width:100%;height:60px}
.g{fill:var(--bar)}.w{fill:var(--lost)}.nf{fill:var(--bad)}.ge{fill:var(--soft)}.zl{fill:var(--zone-lost)}
.zs{fill:var(--zone-sub)}.zn{fill:var(--card)}.edge{stroke:var(--soft);stroke-width:1;
stroke-opacity:.6;fill:none;vector-effect:non-scaling-stroke}
.tensor{display:grid;grid-template-columns:minmax(210px,1fr) 2fr;gap:6px 24px;padding:12px 0;
border-bottom:1px solid var(--line);align-items:start}
.tensor:last-child{border-bottom:0}
.nums{font-size:.85rem;color:var(--soft);font-variant-numeric:tabular-nums}
.nums b{font-weight:600;color:var(--ink)}.nums .bad{color:var(--bad)}
.ulps{margin-top:10px;max-width:430px}.ulps svg{display:block;width:100%;height:40px;
border-bottom:1px solid var(--line);margin-top:3px}
.axis{display:flex;justify-content:space-between;font-size:.74rem;padding-top:2px;color:var(--soft);
font-variant-numeric:tabular-nums}.axis.even span{flex:1 1 0;text-align:center;white-space:nowrap}
details.layer{border:1px solid var(--line);border-radius:10px;padding:6px 16px;margin:.6em 0}
details.layer>summary{font-size:.95rem;color:var(--ink)}
.key{display:flex;flex-wrap:wrap;gap:4px 20px;font-size:.85rem;color:var(--soft);margin:.4em 0}
.key span{display:inline-flex;align-items:center;gap:.5em}
.key svg{width:16px;height:12px;display:block}
.plotted{width:42%;min-width:190px}.plotted .ticks{position:relative;height:1.3em;
margin:0 20px 0 12px}
.ticks span{position:absolute;transform:translateX(-50%);font-weight:400}
.dots{position:relative;height:22px;margin:0 20px 0 12px;border-right:1px solid var(--line);
background:linear-gradient(90deg,var(--line) 1px,#0000 1px) 0 0/calc(100%/var(--d)) 100%}
.dots i,.key i{position:absolute;top:50%;width:10px;height:10px;margin:-5px 0 0 -5px}
.key i{position:relative;top:0;margin:0;display:inline-block}
i.lo{background:var(--accent);transform:rotate(45deg) scale(.85)}
i.in{border:2px solid var(--soft);border-radius:50%;background:var(--bg)}
.dots i.u,.key i.u{width:0;height:18px;margin:-9px 0 0;border-left:2px dotted var(--soft)}
.key i.u{height:12px;margin:0 4px}.key i.gone{width:0;height:0;border:6px solid #0000;
border-left:10px solid var(--bad);border-right:0}
.gap b{position:absolute;inset:0 auto 0 0;background:var(--good-soft);border-right:2px solid
var(--good)}
i.pass{background:var(--good);border-radius:50%}i.fail{background:var(--bad);
transform:rotate(45deg)}
.dots i.gone{width:0;height:0;margin:-7px 0 0 -11px;border:7px solid #0000;border-left:12px solid
var(--bad);border-right:0}
tr.mine>*{font-weight:640}.proof tbody th{font-weight:inherit}.proof th small{display:block;
line-height:1.3}
dl.defs{columns:2;column-gap:48px;margin:0;font-size:.92rem}
dl.defs div{break-inside:avoid;padding-bottom:.9em}dl.defs dt{font-weight:600}
dl.defs dd{margin:.1em 0 0;color:var(--soft)}
@media screen and (max-width:700px){
dl.defs{columns:1}main{padding:18px 16px 48px}h1{
font-size:1.38rem}.brand span{float:none;
display:block}.more{font-size:1rem}.action dl,.pair,.tensor{grid-template-columns:minmax(0,1fr)}
.plot{grid-template-columns:2.9em 1fr}.plot svg{height:160px}dl.run{grid-template-columns:1fr 1fr}
.action{padding:12px 14px}.across .tag{padding:.1em .5em;font-size:.78rem}table{font-size:.84rem}
table.layers th[scope=row]{min-width:0;max-width:9em}
table.layers th small{display:block}table.across th,table.across td{padding-right:6px}
.errors th[scope=row]{max-width:9.5em;overflow-wrap:anywhere}
.proof .plotted{min-width:84px}.proof th[scope=row]{min-width:7.2em}.proof .tag{padding:.1em .4em;
font-size:.76rem}
.proof .dots,.proof .ticks{margin:0 8px 0 4px!important}.proof .ticks span:nth-child(even){
display:none}
.proof th,.proof td{padding-right:6px}}
@page{margin:14mm}
@media print{:root{color-scheme:light}body{font-size:9.5pt}main{max-width:none;padding:0}
nav,pre button,th button::after{display:none!important}h1{font-size:1.6rem}
.finding,figure,tr,.tensor,.action,ul.cards li{break-inside:avoid}h2,h3,h4{break-after:avoid}
.scroll{overflow:visible}section{margin-top:1.4em;padding-top:1em}.pair pre{max-height:none}
table.layers,table.layers thead th{font-size:6.6pt}svg.h{width:58px;height:16px}
.layers th,.layers td{padding:2px 5px 2px 0!important}table.layers th[scope=row]{max-width:11em}
th button{margin:0!important}
details::details-content{content-visibility:visible;height:auto}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
)css";

// Sorting: a click on a column's head sorts by the number in each cell, by its text if there is
// none; a third click restores the order of execution.
const std::string_view kScript = R"js(
for(const t of document.querySelectorAll("table.sort")){const b=t.tBodies[0],o=[...b.rows];
const h=t.tHead.rows[t.tHead.rows.length-1].cells;
[...h].forEach((c,i)=>{if(c.classList.contains("plotted")||c.textContent=="exponents")return;
const k=document.createElement("button");k.textContent=c.textContent;c.textContent="";c.append(k);
k.onclick=()=>{const s=c.getAttribute("aria-sort");for(const x of h)x.removeAttribute("aria-sort");
if(s=="ascending"){b.append(...o);return}const d=s=="descending"?1:-1;
c.setAttribute("aria-sort",d<0?"descending":"ascending");
const v=r=>{const x=r.cells[i].textContent.replace(/\u2212/g,"-"),
m=x.match(/-?[0-9.]+(e-?[0-9]+)?/);
return c.classList.contains("n")?(m?+m[0]-(x.includes("<")?1e-9:0):/NaN|inf/.test(x)?1e99:-1e99):x};
b.append(...[...o].sort((x,y)=>{const p=v(x),q=v(y);return d*(p<q?-1:p>q?1:0)}))}})}
for(const p of document.querySelectorAll("pre.copy")){const k=document.createElement("button");
k.textContent="Copy";const x=p.textContent;k.onclick=()=>{
navigator.clipboard.writeText(x).then(()=>{
k.textContent="Copied"},()=>{getSelection().selectAllChildren(p)})};p.prepend(k)}
)js";

}  // namespace halfscope::html
