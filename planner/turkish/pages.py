"""The published app: its visitors, their turns, and the guide."""

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

_GUIDE = {
    "Machine": "Makine",
    "Three questions": "Üç soru",
    "Three questions, one answer": "Üç soru, bir yanıt",
    "Which model?": "Hangi model?",
    "How much data?": "Ne kadar veri?",
    "What matters most?": "En önemlisi ne?",
    "{count} examples of about a page": "yaklaşık birer sayfalık {count} örnek",
    "{count} parameters": "{count} parametre",
    "Very small": "Çok küçük",
    "Small": "Küçük",
    "Middle-sized, the usual first choice": "Orta boy, alışılmış ilk seçim",
    "Large": "Büyük",
    "Very large": "Çok büyük",
    "The largest that a small team trains": "Küçük bir ekibin eğittiği en büyük model",
    "a first try": "ilk deneme",
    "much": "çok",
    "That it is cheap": "Ucuz olması",
    "That it is done soon": "Çabuk bitmesi",
    "That nothing goes wrong": "Bir şeyin ters gitmemesi",
    "Open this plan with all its numbers": "Bu planı bütün sayılarıyla aç",
    "The words, explained": "Terimlerin açıklaması",
    "The answer": "Yanıt",
    "None of the offers holds this model. Choose a smaller one, or open the engineers' view.": "Tekliflerin hiçbiri bu modeli almıyor. Daha küçük bir model seçin ya da mühendis görünümünü açın.",
    "What could go wrong": "Neler ters gidebilir",
    "{middle} ({low} to {high})": "{middle} ({low} – {high})",
    "VRAM is tight: the job may need more than the card has. Run the pilot of an hour first, or take a larger card.": "VRAM sınırda: iş, karttakinden fazlasını isteyebilir. Önce bir saatlik pilotu koşun ya da daha büyük bir kart alın.",
    "VRAM: {free} of the card stay free by this plan. Longer examples than planned take more.": "VRAM: bu plana göre kartın {free} kadarı boş kalıyor. Plandakinden uzun örnekler daha fazlasını ister.",
    "Storage is not known to survive a stop there: copy each checkpoint and the adapter away before you stop the machine.": "Depolamanın makine durdurulunca kalacağı bilinmiyor: makineyi durdurmadan her checkpoint ve adaptör dosyasını başka yere kopyalayın.",
    "As spot it costs about {usd} and takes {time}; it may be interrupted, so checkpoints must be written elsewhere.": "spot olarak yaklaşık {usd} tutar ve {time} sürer; kesilebilir, bu yüzden checkpoint'ler başka yere yazılmalı.",
    "Nobody states for this offer: {names}. Ask before you rent.": "Bu teklif için belirtilmeyenler: {names}. Kiralamadan önce sorun.",
    "The price is of {date}; look at today's.": "Fiyatın tarihi: {date}; bugünkü fiyata bakın.",
    "Nobody can promise a good result: try a few hundred examples first, and judge the answers yourself.": "İyi bir sonucu kimse garanti edemez: önce birkaç yüz örnekle deneyin, yanıtları kendiniz değerlendirin.",
}
_GLOSSARY = {
    "VRAM": "VRAM",
    "The memory on the graphics card. A job that needs more than there is stops with an error.": "Ekran kartının belleği. Olandan fazlasını isteyen iş hatayla durur.",
    "fine-tuning": "fine-tuning",
    "Training a finished language model a little further, on examples of your own.": "Hazır bir dil modelini kendi örneklerinizle biraz daha eğitmek.",
    "Only small added matrices are trained, the model itself stays as it is: far less memory, a result of some MB.": "Yalnızca eklenen küçük matrisler eğitilir, modelin kendisi değişmez: çok daha az bellek, birkaç MB'lik sonuç.",
    "LoRA on a model that is held in 4 bits a number instead of 16: a quarter of the memory for weights, somewhat slower.": "Sayıları 16 yerine 4 bitle tutulan modelde LoRA: ağırlıklar belleğin dörtte birini kaplar, eğitim biraz yavaşlar.",
    "What LoRA trains and saves: a small file that is used together with the model it was trained on.": "LoRA'nın eğitip kaydettiği şey: eğitildiği modelle birlikte kullanılan küçük bir dosya.",
    "A copy of the state of training on disk, from which it can go on after an interruption.": "Eğitimin o anki durumunun diskteki kopyası; kesinti olursa eğitim buradan sürer.",
    "token": "token",
    "A piece of text as the model reads it: three quarters of a word in English, about half a word in Turkish.": "Metnin modelin okuduğu parçası: İngilizcede bir sözcüğün dörtte üçü, Türkçede yaklaşık yarısı.",
    "Spare machines at a lower price, which the provider may take back at any time.": "Sağlayıcının istediği an geri alabileceği, daha ucuz boş makineler.",
    "Machines at the full price that stay yours until you give them back.": "Tam fiyatla kiralanan, siz bırakana kadar sizde kalan makineler.",
    "micro-batch": "mikro batch",
    "How many examples the card works on at once: more is faster, and takes more memory.": "Kartın aynı anda işlediği örnek sayısı: çoğu daha hızlıdır ve daha fazla bellek ister.",
}

PAGES = {**_GLOSSARY, **_GUIDE, **_STATES, **_VISITORS}
