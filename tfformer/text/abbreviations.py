"""Abbreviations after which a digit does not begin a sentence: "3 Feb. 2018", "Fig. 3".

They are months and weekdays from the Unicode CLDR, and the prefixes of sacremoses that do not end a
sentence, in lower case. `tests/support/write_abbreviations.py` wrote them on 2026-11-23; see there
for the sources.
"""


def alternation(words):
    """A regular expression for these words: in lower case, capitalised, or in capitals.

    It is a trie. For a plain alternation, RE2 would track thousands of states at once, and stop
    using its fast automaton.
    """
    root = {}
    for word in sorted(words):
        for form in sorted({word, word[0].upper() + word[1:], word.upper()}):
            node = root
            for letter in form:
                node = node.setdefault(letter, {})
            node[""] = {}  # a word ends here
    return _expression(root)


def _expression(node):
    branches = [letter + _expression(after) for letter, after in node.items() if letter]
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)}){'?' if '' in node else ''}"


WORDS = """
ab abb abe abl abr abs absol abt abu acc ad adj adm admdor admdora admin admón adr adv advok adw
afmo afr afs ag ago aj ak akad akc aklg akt akuz al alch alg alm amer amn anat andh ang angl
anglosas anm ann anon anorg antr ao aos ap apdo api apod apr aprox aps apskr apyg ar arab archeol
archit arg art artd artyst arv asist asm asmv asst astr astrol astron atd ath aths atp atr atsak
atsisk att atď au aufl aug auj aukaf austr austral aut av avd avg avi avr avv awg az aza bacc bal
banc bart bałt bažn bc bca bcc bco bd bdb bdv belg bgen bh bibl bijv bijz biogr biol birž bkl bldg
bls bm boh bot boul bp br brig bros brt brus bryg bryt bse bsp bt buchst buh bulh buv bv bzgl bzw
bás býv bł ca cap capt cc cca cd cdn centr ces cest ceturtd cf chap chcsl chem chi chir chiń chl
chn chr cirk cit cizojaz cm cmdr co col comdr conj contr corp cpl csc csl css cta cu cyg cyt cyu
cyw czes czw czyt círk cв cвв dab dail dat daw dc dcha dcn dec dek dekl demokr dep dept dergl des
det dex dez dg dgl dgs dh dhr di diaľ dic diec dim dipl dir dirig dis distrib dj dkr dktv dl dn do
doc dokl dol dom don dop dopr dosl dost dosł dott dpdv dr dra dras drp drs drsc ds dst dt du dum
duszp duš dv dvojčl dvs dypl dyr dyw dz déc dën dór dö dėst děj dět dł dš dž džn ebr ecc ef efn egr
egz eil eink eint ej eka ekol ekon el elektr elektrotech emm energet eng enga engas ennfr ens entl
entlo env epic erl esam espf esq etc etnonym etonym euf eufem európ ev evid evtl ew ex excma excmo
exmo exo expr ež fa fab facs fak faks fam fan fasc fatt favr feb febr fer feud fev ff fh fi fig
figs fil filat filol filos filoz fim fiz fiziol fl flk fn fo fol folkl fon forl fot fr fra franc
fraz frb fre frh frl frt frí fs fsh fsk fskj fsl fst ft fut fv fyrrn fyrrv fyz fyziol fäb fél fém
févr físl fös galv garb gas gastr gat geg gen genet genm genpor geod geogr geol geom gerb germ gg
ggf ghj ghju gic gim gimn gl glžk gm gnd gnu godz gosp goue gov gr gral gram grs gruod gréc
gréckokat gtu gv gwe gwen gyd górn głęb hab habil hdl hdr hebr herald hf hidr hist hiszp hk hl hlav
hljsk hljv hljóðv hlsk hod holl hor hos hosp hovor hr hrl hromad hrsg hud hum hv hvk hypok hós höf
iaf ian ibid id ident ie ig ii iii imp impf indoeur indoevr inf inform ing insp instr interj inv
inšt inštr inż inž ir ira isp istor itd itn iul iun iv ix izq ión iв iвв jan janv jap jaz jedn jeu
jfr jhdt jhr jkvr jn jov jr judr juhoamer juhových juhozáp juil jul jun juok jur juž jv jw júl jún
jūl jūn jūr kab kaf kalb kam kan kanad kanc kand kap kapit kar kard kart kas kat katalán katastr
katol kb kek kep ketv kg kgúrsk khöfn kk kl klas klaus kln klst km kn knih kniž knyg koed kol kom
komp konj konkr korej koresp kosm kov kozmet kpc kpt kr krajč krak kresť krit kryt ks kt kuch kul
kult kun kuop kvk kyš kzu kř la laic lapkr latinskoamer lau lch lda lek lett leturbr lex ley lfd
lgen lgh lh lic liep lingv litur liturg lkol lo lr lt ltd ltn ltr lug lun lék lør lв lвв ma mag mai
maj mal malon man mao mar masc mat max may maz maď maž mbe mddr me mec medzinár medž mej menk mer
messrs meteor metr meu meur mevr mezh mfl mg mga mgnt mgr mha mi mie mik millj min miner mio mið
miðm mj mjr ml mld mlja mljó mlle mln mlrd mm mme mms mn mo mok moksl mokyt mons mot mp mr mrd mrs
mrt ms msgr mst mstl mu mudr mut muz mvdr mw mwst mysl mytol màx máj mán márc mä mäc mäe mät mäz må
méi mér mët mín māksl mėn měr mūz mв mвв nadkom najśw napr např nar nasl nb ned nedok neg negat
neig neklas nem neodb neol neos nepubl neskl nesklon nespis nespráv neved než nf nh nhm niedz niek
niekt niem niž nk nkt nl nmgr no nos nov now np npr nprap nr nre nrs nt ntk num nuv nya nze náb
nákl námor námoř nár násl nóv núm núv něm obch obj obr obv obyč obč občian oct odb odp ods ofic og
ogg ohf ojed okr okt on ons oo op opr opt opyt or ord org orig os osob osv ot otrd ots ott ouj out
ovoc oz paeddr par parl pav pavad paž pejor penkt pep pers pet pf pfc pfn pga ph pharmdr phd phdr
phil phmr piektd pir pirm pirmd pkt pl plg plk plpf plv pn pnl podkom podst poez pok pokl pokrač
poligr polit politol polygr pomn pon popl popř porad porov pos posch potrav použ poz pozit pozn poľ
poľno poľnohosp poľov pošt pož pp ppr pr prac pranc predl prek pren preuk prev priet priezv prim
privl prk prof prok prop prot prs przyp práv príd príj prík príp prír prísl príslov príč ps pseud
psich psn pss psych pt pta ptas ptes pts publ pvt pvz pw pàg pág págs pén pís písm pôv pārb płk
předl přel přeprac přivl příl pšt qua qui racc rad rcsl ref refl reg reikšm rel repr reps res resp
rev revid reż ric rif ritm ritstj rkp rndr roz rozk rozlič rozpráv rozš roč rp rs rsdr rsvp rt rte
rugp rugpj rugs rum rus rvk rvík ryb ryc rys rádiotech rég rím rš sa sab sad sam samb samhlj samn
samohl samost samþ sat saus sav saviv sbr schan sec sect seg sek sekm sekr semest sen sep sept
sertif sest sestd set sett sev severoamer severových severozáp sex seç seš sf sfc sfn sg sgg sgt sh
shlj sig sigg sit sk skg skr skup skv skyr skál slang slov sloven smin sn so sob soc soch sociol
sog sogen sol son souhl sov sp spal spec spett spol spoloč spoluhl społ spp správ spółdz spółgł
spôs sq sqq sr sra sras sre srov srs srta srv ss st sta starogréc starorím std stfr stk sto stol
stor stow stoł str stredoamer stredoškol stsl střv su subj sudurt suiv sun superl suppl supt surg
sutr suv sv svētd sz szept szer szt sáb sâm säp sérn sø søn súkr súp súvzť sü sþ sąs sąsk tab taf
tbl techn teg teig teis tekst tel telef teles telev teol ter tex tfn thdr thlic tir tirs tis tj tl
to tor tors tow treč trešd tu turist tuzem tvt tvíhlj ty typogr tzn tzv tzw táz tél týs tř tūkst
tẽg uacht ub ud uds ugu uh uimh ukaz uku ukw umel umr univ upl uppl ur urr urt usf uspoř ust usw
uzt vad vaik vart vas vb vd vds ve vec ved vedl vedľ ven veter vf vg vgl vh vid vienk vietn vii
viii vin virz virš viď vkf vksm vl vlf vlsč vmf vns vod vodohosp voj vok vol vols vr vs vsk vt vth
vtv vulg vv vyd vyj vyobr vyr vyresn vys vysokoškol vz vztaž vzťaž vôb vö vých výd výrob výsk výsl
výtv výtvar význ vč včel vš všeob vůb vв vвв vẽn wer wo woj wt ww wyst wył wł xan xi xii xiii xiv
xix xov xul xv xvi xvii xviii xx xв xвв zach zagr zahr zak zakł zal zam zar zariad zast zastar
zastaráv zaw zazw zał zb zdr zdravot združ zejm zeměd zen zercl zeu zew zewn zi ziff zjemn zkr zlat
zm zn zob zool zprac zr zried zt zug zv zvl zzt záhr zájm zák zákl zám záp západoeur zázn zä zř áfn
ágú áhrs ákv ápr éd ísl ób ófn óákv ún útg územ účt þf þgf þjs þlt þm þml þolm þri þt þýð ćw ćwicz
čas čast čes čet čj čl čp čs čín čísl įl įn įv łac řec śp śr św šach šešt šiaur šk škot šnek špan
št švýc żarg żyd żyw živ žml žr șamd авг апр ақп бейш бер бульв вв вер вто выр га гг гл гос груд
гыйн дек дм доп др дүй дүш ед жек жел жовт зам илл им инд исп ишм июл июн кап кв квіт кг кл км кол
комн коп куб кӑр кӗҫ лип лист лиц лл лют макс мам мар март мау мг мин мл млн млрд мм наб нар нау
нач нед неуд ное ном ноя нояб обл обр общ ок окт ост отл пер перераб пет пл пон пос пр просп проф
пәнҗ раш ред рис руб саб сб св сен сент сеп серп сиш см соч ср сре ст стр січ сәу табл там тел тех
трав тт тун туп тыс уд ул уч фев февр физ хор чел черв чет чәр шарш шейш шим шт шіл шӑм ытл экз эр
юн якш янв јан јул јун җом қаз қар қаң қыр ҫур ҫӗр
""".split()
