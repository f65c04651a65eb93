"""Shows stacks of `perf script` as tables and as a flame graph: one SVG for a browser, with zoom and search."""
import collections
import html
import re
import zlib

import counting

FRAME = re.compile(r'\s+[0-9a-f]+ (.*?)(?:\+0x[0-9a-f]+)? \((.*)\)$')
HASH = re.compile(r'::h[0-9a-f]{16}$')


def stacks(lines):
    """Samples by stack, {((function, library), …): samples}, root first. `lines` are those of `perf script -F comm,ip,sym,dso`."""
    out, stack = collections.Counter(), None
    for line in lines:
        if not line.strip():
            if stack:
                out[tuple(reversed(stack))] += 1
            stack = None
        elif line[0] not in ' \t':
            stack = []
        elif stack is not None:
            m = FRAME.match(line)
            # perf copies only a part of the stack; the frame at its end is unknown.
            if m and m[1] != '[unknown]':
                stack.append((HASH.sub('', m[1]), m[2]))
            elif m and not stack:
                stack.append((f'[{m[2].rsplit("/", 1)[-1].strip("[]")}]', m[2]))
    if stack:
        out[tuple(reversed(stack))] += 1
    return out


def tables(counts, most=40):
    """Prints the samples by room (`counting.room`) and by function. A room's own samples have it at the top of the stack. Those `in` it
    include the libraries that it called."""
    total = sum(counts.values()) or 1
    share = lambda n: f'{100 * n / total:.1f} %'
    own, within, function, below = (collections.Counter() for _ in range(4))
    ours = {}
    for stack, n in counts.items():
        names = [counting.room(*frame) for frame in stack]
        own[names[-1]] += n
        inner = next((r for f, r in zip(reversed(stack), reversed(names)) if 'margay_' in f[0]), names[-1])
        within[inner] += n
        function[stack[-1]] += n
        for frame in set(stack):
            below[frame] += n
    print(f'{total} samples\n')
    counting.table(('room or library', 'own', 'in it and what it calls outside'), [
        (r, share(own[r]), share(within[r])) for r, n in sorted(own.items(), key=lambda i: -max(i[1], within[i[0]])) if max(n, within[r]) * 500 > total])
    print()
    counting.table(('function', 'room', 'own', 'with what it calls'), [
        (f[0][:110], counting.room(*f), share(n), share(below[f])) for f, n in function.most_common(most)])


def colour(room):
    draw = zlib.crc32(room.encode())
    return f'hsl({draw % 360},{55 + draw // 360 % 25}%,{62 + draw // 9000 % 14}%)'


def svg(counts, title):
    """The flame graph: width is time, callees are above their callers, colours are stages."""
    root = {'n': 0, 'kids': {}}
    for stack, n in counts.items():
        root['n'] += n
        at = root
        for frame in stack:
            at = at['kids'].setdefault(frame, {'n': 0, 'kids': {}})
            at['n'] += n
    total = root['n'] or 1
    boxes, deepest, seen = [], 0, collections.Counter()

    def place(node, x, level):
        nonlocal deepest
        for frame, kid in sorted(node['kids'].items()):
            if kid['n'] * 3000 > total:
                deepest = max(deepest, level)
                room = counting.room(*frame)
                boxes.append((x, level, kid['n'], frame[0], room))
                place(kid, x + kid['n'], level + 1)
            x += kid['n']

    place(root, 0, 0)
    for stack, n in counts.items():
        seen[counting.room(*stack[-1])] += n
    width, high = 1400, 17
    foot = 60 + (deepest + 1) * high
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{foot + 40}" font-family="sans-serif" font-size="12">',
           f'<rect width="100%" height="100%" fill="#fff"/><text x="8" y="20" font-size="15">{html.escape(title)}</text>',
           '<text x="8" y="38" fill="#666">click: zoom; click the white: back; press / to search</text><text id="told" x="8" '
           f'y="{foot + 12}"></text>']
    x = 8
    for room, n in seen.most_common(9):
        label = f'{room} {100 * n / total:.0f} %'
        out.append(f'<rect x="{x}" y="{foot + 20}" width="12" height="12" fill="{colour(room)}"/>'
                   f'<text x="{x + 16}" y="{foot + 31}">{html.escape(label)}</text>')
        x += 34 + 7 * len(label)
    out.append('<g id="flames">')
    for at, level, n, name, room in boxes:
        left, wide = at / total * width, n / total * width
        told = html.escape(f'{name} ({room}): {n} samples, {100 * n / total:.2f} %')
        text = html.escape(name[:max(0, int(wide / 6.6) - 1)]) if wide > 24 else ''
        y = foot - 16 - (level + 1) * high
        out.append(f'<g data-x="{at / total:.6f}" data-w="{n / total:.6f}" data-n="{html.escape(name, quote=True)}"><title>{told}</title>'
                   f'<rect x="{left:.2f}" y="{y}" width="{wide:.2f}" height="{high - 1}" fill="{colour(room)}"/>'
                   f'<text x="{left + 3:.2f}" y="{y + 12}">{text}</text></g>')
    out.append('</g>' + SCRIPT.replace('WIDTH', str(width)) + '</svg>')
    return '\n'.join(out)


SCRIPT = '''<script><![CDATA[
const all = [...document.querySelectorAll('#flames > g')], told = document.getElementById('told');
function zoom(x, w) {
  for (const g of all) {
    const a = (g.dataset.x - x) / w * WIDTH, b = g.dataset.w / w * WIDTH, left = Math.max(0, a), wide = Math.min(WIDTH, a + b) - left;
    g.style.display = wide > 0.3 ? '' : 'none';
    const [, r, t] = g.children;
    r.setAttribute('x', left); r.setAttribute('width', Math.max(0, wide));
    t.setAttribute('x', left + 3); t.textContent = wide > 24 ? g.dataset.n.slice(0, Math.max(0, wide / 6.6 - 1)) : '';
  }
}
document.documentElement.addEventListener('click', e => {
  const g = e.target.closest('#flames > g');
  g ? zoom(+g.dataset.x, +g.dataset.w) : zoom(0, 1);
});
document.addEventListener('keydown', e => {
  if (e.key !== '/') return;
  e.preventDefault();
  const what = prompt('functions that hold'); let sum = 0, end = -1;
  const hits = all.filter(g => { const hit = what && g.dataset.n.includes(what); g.children[1].style.stroke = hit ? '#000' : ''; return hit; });
  for (const g of hits.sort((a, b) => a.dataset.x - b.dataset.x || b.dataset.w - a.dataset.w))
    if (+g.dataset.x >= end - 1e-6) { sum += +g.dataset.w; end = +g.dataset.x + +g.dataset.w; }
  told.textContent = what ? what + ': ' + (100 * sum).toFixed(2) + ' %' : '';
});
]]></script>'''
