"""The page that shows a traced launch: one HTML file that needs nothing else.

`pack` turns a `Traced` into few bytes, `document` puts them, the style and the scripts into one text. In the browser
`data.js` unpacks, `rows.js` makes rows of events, `draw.js` paints them, `view.js` knows what is looked at, `panel.js`
shows words and code, and `main.js` listens to the reader.
"""
