"""Just enough of C++ for the linter: code without comments and strings, includes, function lengths.

The text is not preprocessed and not parsed; braces and a few words are enough to tell functions.
"""
import re

# In this order: comments, raw strings, strings, characters (not digit separators as in 1'000).
TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r"|R\"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)\""
    r"|\"(?:\\.|[^\"\\\n])*\""
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.MULTILINE)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE | re.DOTALL)
NOT_A_FUNCTION = re.compile(
    r"^\s*(template\s*<[^{]*>\s*)?(export\s+|inline\s+)*(namespace|class|struct|union|enum|concept|"
    r"extern\s*$)\b")


def _blank(text):
    """Spaces in place of everything but line ends, so that positions stay."""
    return re.sub(r"[^\n]", " ", text)


class Source:
    def __init__(self, text):
        self.lines = text.split("\n")
        self.code = TOKEN.sub(lambda match: _blank(match.group(0)), text)
        self.code_lines = self.code.split("\n")
        self.includes = [(text.count("\n", 0, match.start()) + 1, match.group(2),
                          match.group(1) == '"')
                         for match in INCLUDE.finditer(text)
                         if self.code[match.start():match.end()].lstrip().startswith("#")]

    def allows(self, number, word):
        """True if line `number`, or the one above it, says "lint: allow WORD because REASON"."""
        around = self.lines[max(0, number - 2):number]
        return any(re.search(rf"lint: allow {re.escape(word)} because \w+", line)
                   for line in around)

    def functions(self):
        """(line, lines) of each function body, lambdas and nested functions counted in theirs."""
        code = DIRECTIVE.sub(lambda match: _blank(match.group(0)), self.code)
        found = []
        head_start = position = parentheses = 0
        while position < len(code):
            character = code[position]
            if character == "(":
                parentheses += 1
            elif character == ")":
                parentheses -= 1
            elif character in ";}" and parentheses <= 0:
                head_start = position + 1
            elif character == "{" and parentheses <= 0:
                head = code[head_start:position]
                if self._opens_scope(head):
                    head_start = position + 1
                else:
                    end = self._closing(code, position)
                    rest = code[end + 1:].lstrip()[:1]
                    # `Name() : a_{1}, b_{2} {`: an initialiser's braces, the body is still to come.
                    if ")" in head and rest not in (",", "{"):
                        first = code.count("\n", 0, position)
                        found.append((first + 1, code.count("\n", 0, end) - first + 1))
                        head_start = end + 1
                    elif rest not in (",", "{", ";", ")"):
                        head_start = end + 1
                    position = end
            position += 1
        return found

    @staticmethod
    def _opens_scope(head):
        """True for namespaces and class bodies: what lies in them is looked at again."""
        head = re.sub(r"\b(public|protected|private)\s*:(?!:)", " ", head)
        head = re.sub(r"\[\[[^\]]*\]\]|\balignas\s*\([^)]*\)", " ", head)
        if re.search(r"\b(extern)\s*$", head):  # extern "C", its string blanked
            return True
        return bool(NOT_A_FUNCTION.match(head)) and "=" not in head.split("<")[0]

    @staticmethod
    def _closing(code, opening):
        depth = 0
        for position in range(opening, len(code)):
            if code[position] == "{":
                depth += 1
            elif code[position] == "}":
                depth -= 1
                if depth == 0:
                    return position
        return len(code) - 1
