"""The published app: visitors and their turns."""

__all__ = ["PAGES"]

_VISITORS = {
    "This app has as many visitors as it takes at once ({count}). The page tries again by itself every 30 seconds.": "Uygulamada şu anda alabileceği kadar ziyaretçi var ({count}). Sayfa her 30 saniyede bir kendiliğinden yeniden dener.",
    "waiting for another dry run to end": "başka bir kuru koşunun bitmesi bekleniyor",
}

_STATES = {
    "Computing …": "Hesaplanıyor …",
    "The connection to the app is lost; trying again. Inputs are off until then.": "Uygulamayla bağlantı koptu; yeniden deneniyor. O zamana kadar girişler kapalı.",
    "This session has ended, so nothing here is computed any more. Your plan is in the page's address.": "Bu oturum sona erdi, artık hesap yapılmıyor. Planınız sayfanın adresinde duruyor.",
    "Open it again": "Yeniden aç",
}

PAGES = {**_STATES, **_VISITORS}
