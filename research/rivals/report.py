from typing import Any
def page(found: Any) -> str:
    return ""
