package android.view;

import android.content.Context;

public class View {
    public interface OnClickListener {
        void onClick(View v);
    }

    public View(Context context) {}

    public void setOnClickListener(OnClickListener l) {}

    public void setEnabled(boolean enabled) {}
}
