"""The text of a PDF, read in a process apart, as a PDF is a program that a stranger wrote.

The process has an empty environment, bounds of memory and of processor time, and no file to write to. It gets the PDF
at its input and answers with text, or with a word for what is wrong and status FAULTY. What it answers is checked for
nothing but its length.
"""

import asyncio
import sys
from pathlib import Path

MOST_PAGES = 500
MOST_TEXT_BYTES = 4 << 20
MOST_SECONDS = 20.0
MOST_PROCESSOR_SECONDS = 15
MOST_MEMORY = 768 << 20
AT_ONCE = 2
"""How many PDFs a process of the service has read at once."""

FAULTY = 3
"""The status of a process that says what is wrong."""

FAULTS = {
    "locked": "it is protected by a password",
    "pages": f"it has more than {MOST_PAGES} pages",
    "long": f"its text has more than {MOST_TEXT_BYTES:,} bytes",
    "blank": "it has no text; its pages may be pictures",
    "broken": "it is damaged, or too large to be read",
}


class UnreadablePdf(Exception):
    """A PDF that can't be read, with the reason."""


class PdfReading:
    """Reads PDFs, AT_ONCE at a time."""

    def __init__(self, seconds: float = MOST_SECONDS) -> None:
        self._places, self._seconds = asyncio.Semaphore(AT_ONCE), seconds

    async def text(self, content: bytes) -> bytes:
        """The text of a PDF in UTF-8, page by page. Raises UnreadablePdf."""
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        async with self._places:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", str(Path(__file__))), stdin=pipe, stdout=pipe, stderr=nothing, env={}, cwd="/"
            )
            try:
                async with asyncio.timeout(self._seconds):
                    told, _ = await process.communicate(content)
            except TimeoutError:
                raise UnreadablePdf(f"it takes longer than {self._seconds:g} s to read") from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if process.returncode == 0 and len(told) <= MOST_TEXT_BYTES:
            return told
        word = told.decode("ascii", "replace") if process.returncode == FAULTY else "broken"
        raise UnreadablePdf(FAULTS.get(word, FAULTS["broken"]))


def _read(content: bytes) -> bytes:
    """The text of a PDF. Raises ValueError with a word of FAULTS, and whatever pypdf raises."""
    from io import BytesIO

    from pypdf import PdfReader

    reader = PdfReader(BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("locked")
    if len(reader.pages) > MOST_PAGES:
        raise ValueError("pages")
    told, blank = bytearray(), True
    for number, page in enumerate(reader.pages, 1):
        text = page.extract_text().replace("\0", "").strip()
        blank = blank and not text
        told += f"[Page {number}]\n{text}\n\n".encode("utf-8", "replace")
        if len(told) > MOST_TEXT_BYTES:
            raise ValueError("long")
    if blank:
        raise ValueError("blank")
    return bytes(told)


def main() -> int:
    """Read the PDF at the input."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_PROCESSOR_SECONDS, MOST_PROCESSOR_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        told, status = _read(sys.stdin.buffer.read()), 0
    except Exception as error:  # pypdf's kinds are many, and each means the same
        word = str(error) if isinstance(error, ValueError) and str(error) in FAULTS else "broken"
        told, status = word.encode(), FAULTY
    sys.stdout.buffer.write(told)
    return status


if __name__ == "__main__":
    sys.exit(main())
