"""Minimises differing cases, all those of a capture at once, and sorts them into classes."""
import re


class Case:
    """Rules that belong together. In each text, `sid:@` stands for the rule's number, and `@` in a name for the case's number."""

    def __init__(self, texts): self.texts = texts

    def rules(self, number):
        return [t.replace('sid:@', f'sid:{number * 4 + n}').replace('@', str(number)) for n, t in enumerate(self.texts)]

    def parts(self):
        return [split(t) for t in self.texts]


def split(text):
    """The header and the options of a rule's text. A `;` in quotes does not end an option."""
    head, _, rest = text.partition(' (')
    out, quoted, word = [], False, ''
    for n, c in enumerate(rest.removesuffix(')')):
        if c == '"' and (n == 0 or rest[n - 1] != '\\'): quoted = not quoted
        if c == ';' and not quoted:
            out.append(word.strip()); word = ''
        else: word += c
    if word.strip(): out.append(word.strip())
    return head, out


def join(head, options): return f'{head} (' + ' '.join(f'{o};' for o in options) + ')'


def kind(here, there):
    """The kind of difference between two results of a rule; `None` if they are equal."""
    if here == there: return None
    if here == 'refused': return 'refused here'
    if there == 'refused': return 'refused there'
    if not here: return 'missed'
    if not there: return 'extra'
    if len(here) == len(there): return 'other packets'
    return 'fewer' if len(here) < len(there) else 'more'


def first(case, here, there):
    """The first rule of a case whose results differ, and the kind of difference."""
    return next(((n, k) for n, (a, b) in enumerate(zip(here, there)) if (k := kind(a, b))), None)


def smaller(case):
    """All cases that are one step smaller than this one."""
    for n, text in enumerate(case.texts):
        if len(case.texts) > 1: yield Case(case.texts[:n] + case.texts[n + 1:])
        head, options = split(text)
        for i, option in enumerate(options):
            if option.startswith('sid:'): continue
            yield replaced(case, n, head, options[:i] + options[i + 1:])
            m = re.match(r'^(content:)(!?)"([^|"\\]{2,})"$', option)
            if m:
                half = len(m[3]) // 2
                for part in (m[3][:half], m[3][half:]): yield replaced(case, n, head, options[:i] + [f'{m[1]}{m[2]}"{part}"'] + options[i + 1:])
        words = head.split(' ')
        if len(words) != 7: continue
        for i in (2, 3, 5, 6):
            if words[i] != 'any': yield replaced(case, n, ' '.join(words[:i] + ['any'] + words[i + 1:]), options)
        if words[4] == '<>': yield replaced(case, n, ' '.join(words[:4] + ['->'] + words[5:]), options)


def replaced(case, n, head, options): return Case(case.texts[:n] + [join(head, options)] + case.texts[n + 1:])


def shrink(cases, run, rounds=30):
    """Minimises `cases`, each with its kind of difference. `run` takes cases and returns the first difference of each."""
    done, open_ = [], list(cases)
    for _ in range(rounds):
        if not open_: break
        tries = [(i, c) for i, (case, _) in enumerate(open_) for c in smaller(case)]
        found = {}
        for (i, c), difference in zip(tries, run([c for _, c in tries])):
            if difference and i not in found and difference[1] == open_[i][1]: found[i] = c
        done += [x for i, x in enumerate(open_) if i not in found]
        open_ = [(c, open_[i][1]) for i, c in found.items()]
    return done + open_


def shape(case):
    """The case without its values. Cases that differ for the same reason mostly have the same shape."""
    out = []
    for head, options in case.parts():
        words = head.split(' ')
        special = [re.sub(r'[0-9a-f]*[:.][0-9a-f:.]+', 'N', re.sub(r'\d+', 'N', w)) for w in words[2:] if w not in ('any', '->')]
        names = []
        for o in options:
            name, _, value = o.partition(':')
            if name in ('sid', 'msg'): continue
            value = re.sub(r'"[^"]*"', '""', value)
            names.append(name + (':' + re.sub(r'\d+', 'N', value) if value and name not in ('content', 'pcre') else ':!' if value.startswith('!') else ''))
        out.append(' '.join([words[1] if len(words) > 1 else head, *special, *names]))
    return ' / '.join(out)
