"""The published app: visitors and their turns."""

__all__ = ["PAGES"]

_VISITORS = {
    "This app has as many visitors as it takes at once ({count}). The page tries again by itself every 30 seconds.": "Uygulamada şu anda alabileceği kadar ziyaretçi var ({count}). Sayfa her 30 saniyede bir kendiliğinden yeniden dener.",
    "waiting for another dry run to end": "başka bir kuru koşunun bitmesi bekleniyor",
}

PAGES = {**_VISITORS}
