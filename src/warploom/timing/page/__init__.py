"""The page of a traced launch: one self-contained HTML file.

`pack` compresses a `Traced`; `document` combines the bytes, the style and the scripts. In the browser `data.js`
unpacks, `rows.js` makes rows of events, `draw.js` paints them, `view.js` holds the visible range, `panel.js` shows text
and code, and `main.js` handles input.
"""
